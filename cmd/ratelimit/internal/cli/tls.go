package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func (a *app) tlsFiles(o *redis.Options) error {
	f := a.servers
	if f.caFile == "" && f.certFile == "" && f.keyFile == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("--tls-ca, --tls-cert and --tls-key need a URL with TLS; write rediss:// in place of redis://")
	}
	config := o.TLSConfig.Clone()
	if f.caFile != "" {
		text, err := os.ReadFile(f.caFile)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w; name a file with certificates", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tls-ca: %s contains no certificate; name a file in PEM form", f.caFile)
		}
	}
	if f.certFile != "" {
		pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w; name files in PEM form that belong together", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	o.TLSConfig = config
	return nil
}
