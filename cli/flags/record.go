package flags

import (
	"crypto/ed25519"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sandboxrun/sandboxrun/fault"
	"github.com/sandboxrun/sandboxrun/record"
)

// Record is the flag that names the directory of a record.
func Record() cli.Flag {
	return &cli.StringFlag{Name: "record", Usage: "write a record of the sandbox to `DIR`, which the program must not see (default: no record); see verify"}
}

// Sign is the flag that names the key of a record.
func Sign() cli.Flag {
	return &cli.StringFlag{Name: "sign", Usage: "sign the record with the Ed25519 private key in `FILE` (PEM) (default: no signature)"}
}

// SigningKey reads the key that --sign names. It is nil without --sign.
func SigningKey(c *cli.Context) (ed25519.PrivateKey, error) {
	path := c.String("sign")
	switch {
	case !c.IsSet("sign"):
		return nil, nil
	case path == "":
		return nil, fault.Usage("--sign is empty", "name a file")
	case c.Command.Name == "run" && !c.IsSet("record"):
		return nil, fault.Usage("--sign goes with --record", Help(c))
	}
	const hint = "openssl genpkey -algorithm ed25519 -out KEY.pem makes one"
	data, err := ReadFile(path)
	if err != nil {
		return nil, fault.Usage(fmt.Sprintf("--sign: %v", err), hint)
	}
	key, err := record.PrivateKey(data)
	if err != nil {
		return nil, fault.Usage(fmt.Sprintf("--sign %s: %v", path, err), hint)
	}
	return key, nil
}
