package cli

import (
	"crypto/ed25519"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/record"
)

func recordFlag() cli.Flag {
	return &cli.StringFlag{Name: "record", Usage: "write a record of the sandbox to `DIR`, which the program must not see (default: no record); see verify"}
}

func signFlag() cli.Flag {
	return &cli.StringFlag{Name: "sign", Usage: "sign the record with the Ed25519 private key in `FILE` (PEM) (default: no signature)"}
}

// signingKey reads the key that --sign names. It is nil without --sign.
func (p *program) signingKey(c *cli.Context) (ed25519.PrivateKey, error) {
	path := c.String("sign")
	switch {
	case !c.IsSet("sign"):
		return nil, nil
	case path == "":
		return nil, &usage{"--sign is empty", "name a file"}
	case c.Command.Name == "run" && !c.IsSet("record"):
		return nil, &usage{"--sign goes with --record", helpHint(c)}
	}
	const hint = "openssl genpkey -algorithm ed25519 -out KEY.pem makes one"
	data, err := readFile(path)
	if err != nil {
		return nil, &usage{fmt.Sprintf("--sign: %v", err), hint}
	}
	key, err := record.PrivateKey(data)
	if err != nil {
		return nil, &usage{fmt.Sprintf("--sign %s: %v", path, err), hint}
	}
	return key, nil
}
