// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

func TestSignatures(t *testing.T) {
	key := newKey(t)
	list := []byte("checksums\n")
	signature := sign(t, key, list)
	good := publicKey(t, key.Public())
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files map[string]string
		key   []byte
		want  string
	}{
		"valid": {
			map[string]string{"SHA256SUMS.sig": signature}, good,
			"ok    SHA256SUMS.sig: signed by KEY\n",
		},
		"of another file too": {
			map[string]string{"SHA256SUMS.sig": signature + "\n", "a.txt": "a", "a.txt.sig": sign(t, key, []byte("a"))}, good,
			"ok    SHA256SUMS.sig: signed by KEY\nok    a.txt.sig: signed by KEY\n",
		},
		"of other checksums": {
			map[string]string{"SHA256SUMS.sig": sign(t, key, []byte("checksumS\n"))}, good,
			"FAIL  SHA256SUMS.sig: the signature does not match: download SHA256SUMS and the signature again, and compare the key with the published one\n",
		},
		"by another key": {
			map[string]string{"SHA256SUMS.sig": sign(t, newKey(t), list)}, good,
			"FAIL  SHA256SUMS.sig: the signature does not match: download SHA256SUMS and the signature again, and compare the key with the published one\n",
		},
		"not base64": {
			map[string]string{"SHA256SUMS.sig": "?"}, good,
			"FAIL  SHA256SUMS.sig: the signature is not base64: illegal base64 data at input byte 0: download SHA256SUMS and the signature again, and compare the key with the published one\n",
		},
		"missing": {
			nil, good,
			"FAIL  SHA256SUMS.sig: missing: download it, or verify without KEY\n",
		},
		"only of another file": {
			map[string]string{"a.txt": "a", "a.txt.sig": sign(t, key, []byte("a"))}, good,
			"FAIL  SHA256SUMS.sig: missing: download it, or verify without KEY\nok    a.txt.sig: signed by KEY\n",
		},
		"no key": {
			map[string]string{"SHA256SUMS.sig": signature}, nil,
			"FAIL  SHA256SUMS.sig: not checked without a key: name the public key with KEY=cosign.pub\n",
		},
		"neither key nor signature": {
			nil, nil,
			"skip  SHA256SUMS.sig: the release is not signed\n",
		},
		"key of another kind": {
			map[string]string{"SHA256SUMS.sig": signature}, publicKey(t, edwards),
			"FAIL  KEY: the key is ed25519.PublicKey, not for ECDSA: name a public key, as cosign writes it, with KEY=cosign.pub\n",
		},
		"private key": {
			map[string]string{"SHA256SUMS.sig": signature}, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
			"FAIL  KEY: not a public key in PEM: name a public key, as cosign writes it, with KEY=cosign.pub\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			writeFile(t, filepath.Join(directory, "SHA256SUMS"), list)
			for file, content := range test.files {
				writeFile(t, filepath.Join(directory, file), []byte(content))
			}
			options := Options{Directory: directory}
			if test.key != nil {
				options.Key = filepath.Join(t.TempDir(), "cosign.pub")
				writeFile(t, options.Key, test.key)
			}
			var output bytes.Buffer
			r := &release{Options: options, report: report{output: &output}}
			r.signatures()
			got := output.Bytes()
			if options.Key != "" {
				got = bytes.ReplaceAll(got, []byte(options.Key), []byte("KEY"))
			}
			if string(got) != test.want {
				t.Errorf("output is\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns what `cosign sign-blob --key` writes.
func sign(t *testing.T, key *ecdsa.PrivateKey, content []byte) string {
	t.Helper()
	digest := sha256.Sum256(content)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signature)
}

func publicKey(t *testing.T, key crypto.PublicKey) []byte {
	t.Helper()
	encoded, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded})
}

func writeFile(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
