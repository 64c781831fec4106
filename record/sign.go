package record

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// SignatureSuffix is added to the name of a record for the name of its signature.
const SignatureSuffix = ".sig"

// maxSignature is larger than any signature file, in bytes.
const maxSignature = 4 << 10

// Signature binds a record to a key. The head names the whole record up to that event. The signed text is
//
//	sandboxrun record 1 SESSION SEQ HASH
//
// with a newline at its end, by plain Ed25519.
type Signature struct {
	Head
	Signature []byte `json:"signature"` // in base64
}

func (h Head) message() []byte {
	return fmt.Appendf(nil, "sandboxrun record %d %s %d %s\n", Format, h.Session, h.Seq, h.Hash)
}

// Sign signs a record whose last event is head, and writes the signature beside it: into the directory dir, where the
// record is called name. The file must not exist.
func Sign(dir *os.File, name string, head Head, key ed25519.PrivateKey) error {
	data, err := json.Marshal(Signature{head, ed25519.Sign(key, head.message())})
	if err != nil {
		return fmt.Errorf("sign record: %w", err)
	}
	f, err := openAt(dir, name+SignatureSuffix, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL)
	if err != nil {
		return fmt.Errorf("sign record: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("sign record: %w", err)
	}
	return nil
}

// readSignature reads a signature and checks it with the key.
func readSignature(data []byte, key ed25519.PublicKey) (Head, error) {
	var s Signature
	if len(data) > maxSignature {
		return Head{}, errors.New("it is too long")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return Head{}, err
	}
	if !ed25519.Verify(key, s.message(), s.Signature) {
		return Head{}, errors.New("this key has not made it, or it was changed")
	}
	return s.Head, nil
}

// PrivateKey reads a key to sign with, as "openssl genpkey -algorithm ed25519" writes it: PKCS #8 in PEM.
func PrivateKey(data []byte) (ed25519.PrivateKey, error) {
	der, err := onlyBlock(data, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	for _, version := range []string{"\x00", "\x01"} { // RFC 5208; RFC 5958, where the public key may follow
		seed, ok := bytes.CutPrefix(der, []byte("\x02\x01"+version+ed25519ID+"\x04\x22\x04\x20"))
		if ok && len(seed) >= ed25519.SeedSize {
			return ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize]), nil
		}
	}
	return nil, errors.New("read private key: it is not for Ed25519")
}

// PublicKey reads a key to verify with, as "openssl pkey -pubout" writes it: PKIX in PEM.
func PublicKey(data []byte) (ed25519.PublicKey, error) {
	der, err := onlyBlock(data, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, ok := bytes.CutPrefix(der, []byte(ed25519ID+"\x03\x21\x00"))
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("read public key: it is not for Ed25519")
	}
	return key, nil
}

// ed25519ID is the DER encoding of the algorithm's identifier. All of a key but the key itself has one encoding (RFC 8410), so
// PrivateKey and PublicKey compare bytes: crypto/x509 would add 1 MB to the binary, which each rootless start copies.
const ed25519ID = "\x30\x05\x06\x03\x2b\x65\x70"

// onlyBlock returns the content of the SEQUENCE in the only PEM block, or nothing if it is no SEQUENCE as short as keys of Ed25519 are.
func onlyBlock(data []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(data)
	switch {
	case block == nil:
		return nil, fmt.Errorf("read key: there is no PEM block %q", kind)
	case block.Type != kind:
		return nil, fmt.Errorf("read key: the PEM block is %q, want %q", block.Type, kind)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("read key: more than one PEM block")
	}
	der := block.Bytes
	if len(der) < 2 || der[0] != 0x30 || der[1] >= 0x80 || int(der[1]) != len(der)-2 {
		return nil, nil
	}
	return der[2:], nil
}
