// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sidecar-termination/operator/hack/packaging/dist"
)

// signatureSuffix ends the name of the signature of a file.
const signatureSuffix = ".sig"

// bundleFile is the signature of the checksums that the release workflow makes without a key. Only cosign can check it.
const bundleFile = dist.ChecksumFile + ".sigstore.json"

// signatures checks the signatures in the directory with the key. A release with a key needs a signature of its
// checksums, which cover all other files.
func (r *release) signatures() {
	entries, err := os.ReadDir(r.Directory)
	if err != nil {
		return
	}
	var signed []string
	for _, entry := range entries {
		if name, ok := strings.CutSuffix(entry.Name(), signatureSuffix); ok {
			signed = append(signed, name)
		}
	}
	const checksumSignature = dist.ChecksumFile + signatureSuffix
	if r.Key == "" {
		for _, name := range signed {
			r.fail("%s%s: not checked without a key: name the public key with KEY=cosign.pub", name, signatureSuffix)
		}
		switch _, err := os.Stat(r.path(bundleFile)); {
		case err == nil:
			r.skip("%s: check it with `cosign verify-blob`, see docs/packages.md", bundleFile)
		case len(signed) == 0:
			r.skip("%s: the release is not signed", checksumSignature)
		}
		return
	}
	key, err := readKey(r.Key)
	if err != nil {
		r.fail("%s: %v: name a public key, as cosign writes it, with KEY=cosign.pub", r.Key, err)
		return
	}
	if !slices.Contains(signed, dist.ChecksumFile) {
		r.fail("%s: missing: download it, or verify without KEY", checksumSignature)
	}
	for _, name := range signed {
		if err := r.signature(key, name); err != nil {
			r.fail("%s%s: %v: download %s and the signature again, and compare the key with the published one", name, signatureSuffix, err, name)
			continue
		}
		r.pass("%s%s: signed by %s", name, signatureSuffix, r.Key)
	}
}

func readKey(file string) (*ecdsa.PublicKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("not a public key in PEM")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	public, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("the key is %T, not for ECDSA", key)
	}
	return public, nil
}

// signature checks what `cosign sign-blob --key` writes: a base64-encoded ECDSA signature of the SHA-256 digest.
func (r *release) signature(key *ecdsa.PublicKey, name string) error {
	encoded, err := os.ReadFile(r.path(name + signatureSuffix))
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	if err != nil {
		return fmt.Errorf("the signature is not base64: %w", err)
	}
	content, err := os.ReadFile(r.path(name))
	if err != nil {
		return err
	}
	if digest := sha256.Sum256(content); !ecdsa.VerifyASN1(key, digest[:], signature) {
		return errors.New("the signature does not match")
	}
	return nil
}
