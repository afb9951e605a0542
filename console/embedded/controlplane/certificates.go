package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const validity = 10 * 365 * 24 * time.Hour

// authority signs certificates. Its own key is never written: a platform gets all of its certificates at once.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// certificates writes what the platform's programs need to know each other: an authority for the cluster and another for
// etcd (so that a client of the API server is no client of etcd), a certificate for each server and each client, and
// the key that signs the tokens of service accounts. Every file is readable by its owner alone.
func certificates(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: controlplane certificates FOLDER")
	}
	folder := args[0]
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	cluster, err := newAuthority(folder, "authority", "gpu-tenancy-embedded")
	if err != nil {
		return err
	}
	etcd, err := newAuthority(folder, "etcd-authority", "gpu-tenancy-embedded-etcd")
	if err != nil {
		return err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// Names as Kubernetes' bootstrap RBAC has them; system:masters is every right.
	return errors.Join(
		cluster.issue(folder, "serving", pkix.Name{CommonName: "kube-apiserver"}),
		cluster.issue(folder, "admin", pkix.Name{CommonName: "gpu-tenancy-admin", Organization: []string{"system:masters"}}),
		cluster.issue(folder, "controller-manager", pkix.Name{CommonName: "system:kube-controller-manager"}),
		cluster.issue(folder, "scheduler", pkix.Name{CommonName: "system:kube-scheduler"}),
		cluster.issue(folder, "kwok", pkix.Name{CommonName: "gpu-tenancy-kwok"}),
		etcd.issue(folder, "etcd", pkix.Name{CommonName: "etcd"}),
		etcd.issue(folder, "etcd-client", pkix.Name{CommonName: "kube-apiserver"}),
		writeKey(folder, "service-accounts", tokens),
	)
}

func newAuthority(folder, file, name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificateFor(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	made := &authority{certificate: template, key: key}
	der, err := made.sign(folder, file, template, key.Public())
	if err != nil {
		return nil, err
	}
	// Parsed, it has the key identifier that each certificate under it must name: strict clients refuse it otherwise.
	made.certificate, err = x509.ParseCertificate(der)
	return made, err
}

// issue writes a key and a certificate for it. Each may serve on loopback as well as be a client: etcd's peers are
// both at once, and who a client is comes from its subject.
func (a *authority) issue(folder, file string, subject pkix.Name) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := certificateFor(subject)
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.DNSNames = []string{"localhost"}
	if _, err := a.sign(folder, file, template, key.Public()); err != nil {
		return err
	}
	return writeKey(folder, file, key)
}

func (a *authority) sign(folder, file string, template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, public, a.key)
	if err != nil {
		return nil, err
	}
	return der, writePEM(folder, file+".crt", "CERTIFICATE", der)
}

func certificateFor(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour), // a clock set back a little must not end the platform
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func writeKey(folder, file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(folder, file+".key", "EC PRIVATE KEY", der)
}

func writePEM(folder, file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(folder, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
