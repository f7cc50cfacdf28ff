package cli

import (
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
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
		var err error
		if config.RootCAs, err = dialing.Authorities("--tls-ca", f.caFile); err != nil {
			return err
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
