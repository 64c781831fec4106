package inspect

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/cli/caller"
	"github.com/sandboxrun/sandboxrun/cli/flags"
	"github.com/sandboxrun/sandboxrun/cli/plan"
	"github.com/sandboxrun/sandboxrun/cli/show"
	"github.com/sandboxrun/sandboxrun/container/result"
	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
	"github.com/sandboxrun/sandboxrun/rootfs/hostfs"
)

// Verify is the command verify.
func (p *Commands) Verify() *cli.Command {
	return &cli.Command{
		Name: "verify", Usage: "check the record of a sandbox", ArgsUsage: "RECORD",
		Description: "RECORD is a file, or a directory that has a record.jsonl. It can be checked on any machine, without the sandbox.\n" +
			"Exit status: 0 if the record is complete and unchanged and reports no fault, else 1.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "policy", Aliases: []string{"p"},
				Usage: "fail unless the sandbox had the policy `FILE` (TOML or JSON, - for standard input), or the preset of that name",
			},
			&cli.StringFlag{Name: "key", Usage: "fail unless RECORD.sig is a signature by the key whose public half is in `FILE` (PEM, Ed25519)"},
			&cli.StringFlag{Name: "sandbox", Usage: "fail unless the record is of the sandbox `ID`"},
			&cli.StringFlag{Name: "head", Usage: "fail unless the last event has this `HASH`, which an earlier verify printed"},
			flags.JSON(),
		},
		Action: p.verify,
	}
}

func (p *Commands) verify(c *cli.Context) error {
	if c.NArg() != 1 {
		return fault.Usage("name one record", flags.Help(c))
	}
	f, err := openRecord(c.Args().First())
	if err != nil {
		return err
	}
	defer f.Close()
	o, err := p.verifyOptions(c, f.Name())
	if err != nil {
		return err
	}
	r, err := record.Verify(f, o)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		p.PrintJSON(r)
	} else if err := showReport(p.Out, r); err != nil {
		return caller.UnlessClosed(err)
	}
	if !r.Well {
		p.Status = fault.ExitRefused
	}
	for _, problem := range r.Problems {
		message := problem.Message
		if problem.Line > 0 {
			message = fmt.Sprintf("line %d: %s", problem.Line, message)
		}
		p.Complain(&result.Error{Code: problem.Code, Message: show.OneLine(message), Hint: problemHint(problem.Code)})
	}
	return nil
}

// openRecord opens a record by the name of the file or of its directory. The file is hostile input.
func openRecord(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, record.FileName)
		info, err = os.Stat(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Usage(fmt.Sprintf("there is no record %q", path), "name the file, or the directory that holds "+record.FileName)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is no regular file", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	f, err := hostfs.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	return f, nil
}

func (p *Commands) verifyOptions(c *cli.Context, path string) (record.Options, error) {
	o := record.Options{Sandbox: c.String("sandbox"), Head: c.String("head")}
	for _, name := range []string{"policy", "key", "sandbox", "head"} {
		if c.IsSet(name) && c.String(name) == "" {
			return o, fault.Usage(fmt.Sprintf("--%s is empty", name), flags.Help(c)) // it must not look as if it was compared
		}
	}
	if b, err := hex.DecodeString(o.Head); o.Head != "" && (err != nil || len(b) != len(record.Digest(nil))/2) {
		return o, fault.Usage(fmt.Sprintf("--head %q is no hash", o.Head), "64 hexadecimal digits, as verify shows them")
	}
	if name := c.String("policy"); name != "" {
		policy, err := plan.Load(p.Caller, plan.Source{Name: name})
		if err != nil {
			return o, err
		}
		o.Policy = policy.Digest
	}
	var err error
	if name := c.String("key"); name != "" {
		if o.Key, err = readPublicKey(name); err != nil {
			return o, err
		}
	}
	o.Signature, err = readSignature(path + record.SignatureSuffix)
	return o, err
}

func readPublicKey(name string) (ed25519.PublicKey, error) {
	data, err := flags.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := record.PublicKey(data)
	if err != nil {
		return nil, fault.Usage(fmt.Sprintf("--key %q: %v", name, err), "openssl pkey -in KEY.pem -pubout writes the public key")
	}
	return key, nil
}

// readSignature returns nil if there is no signature.
func readSignature(path string) ([]byte, error) {
	f, err := hostfs.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read signature: %w", err)
	}
	defer f.Close()
	const most = 64 << 10 // larger than any signature
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil, fmt.Errorf("read signature: %w", err)
	}
	if len(data) == 0 {
		data = []byte("\n") // there is a file, and it is not a good signature
	}
	return data, nil
}

func problemHint(code string) string {
	switch code {
	case fault.RecordUnfinished:
		return "if the sandbox still exists, verify again when it has been deleted"
	case fault.RecordCut, fault.RecordTorn, fault.RecordUntold, fault.RecordEmpty:
		return "the lost content is unknown: do not rely on what the record does not have"
	case fault.RecordWrongPolicy:
		return "the digest depends on paths and variables of the policy: they must be the same as then"
	case fault.RecordNotSigned:
		return "a signature is a file beside the record, with its name and " + record.SignatureSuffix
	case fault.RecordFormat:
		return "use the version of sandboxrun that wrote it"
	case fault.CheckBroken, fault.SandboxLeftovers, fault.SandboxOrphans:
		return "" // the record is good; the sandbox was not
	}
	return "do not rely on this record"
}

// showReport prints a report for people. Every text of a record may come from an attacker.
func showReport(to io.Writer, r *record.Report) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, show.OneLine(fmt.Sprintf(format, args...)))
	}
	if s := r.Session; s != nil {
		row("sandbox", "%s, session %s", s.Sandbox, r.Head.Session)
		row("policy", "%s, digest %s", s.PolicyFile, s.PolicyDigest)
		row("machine", "Linux %s, %s, network %s", s.Kernel, s.Backend, s.Network)
	}
	row("events", "%d, %s", r.Events, period(r.First, r.Last))
	row("head", "%s", r.Head.Hash)
	row("signature", "%s", signature(r.Signature))
	row("held", "%s", list(r.Held, func(c record.Check) string { return c.Name }))
	row("broken", "%s", list(r.Broken, func(c record.Check) string { return c.Name }))
	row("not tested", "%s", list(r.NotTested, func(c record.Check) string { return because(c.Name, c.Why) }))
	row("weaker", "%s", list(r.Weaker, func(x record.Weakness) string { return because(x.What, x.Reason) }))
	row("limits not read back", "%s", list(r.Unverified, func(l record.Limit) string { return l.Name }))
	outcomes := map[string]int{}
	for _, run := range r.Runs {
		outcomes[run.Outcome]++
	}
	row("runs", "%s", counts(outcomes))
	row("network", "%s", counts(r.Network))
	row("end", "%s", ended(r.End))
	return w.Flush()
}

func period(first, last time.Time) string {
	if first.IsZero() {
		return "at no time"
	}
	return first.UTC().Format(time.DateTime) + " to " + last.UTC().Format(time.DateTime) + " UTC"
}

func signature(state string) string {
	if state == record.SignatureUnchecked {
		return "not checked: name the public key with --key"
	}
	return state
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + " (" + why + ")"
}

// list formats a number of items and their names.
func list[T any](items []T, name func(T) string) string {
	if len(items) == 0 {
		return "none"
	}
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = name(item)
	}
	return fmt.Sprintf("%d: %s", len(names), strings.Join(names, ", "))
}

func counts(m map[string]int) string {
	if len(m) == 0 {
		return "none"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

func ended(e *record.End) string {
	if e == nil {
		return "none"
	}
	looked := func(what string, nobody bool, n int) string {
		if nobody {
			return what + " not looked for"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	return strings.Join([]string{
		e.Why, looked("litter", e.Leftovers == nil, len(e.Leftovers)), looked("orphans", e.Orphans == nil, len(e.Orphans)),
	}, ", ")
}
