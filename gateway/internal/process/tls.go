package process

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// TLSFiles names PEM files for both ports. Without these files, the ports do not use TLS.
type TLSFiles struct {
	Cert, Key string
	GRPCOnly  bool   // whether the HTTP port has no TLS
	ClientCA  string // file with the CA certificates that verify clients; "" if clients need no certificate
}

// config returns the TLS configuration, or nil if f names no files. The files are read again when
// they change, so certificates can be renewed without a restart. If the new files are invalid, an
// error is logged and the previous files stay in use.
func (f TLSFiles) config(log *slog.Logger) (*tls.Config, error) {
	switch {
	case f.Cert == "" && f.Key == "" && f.ClientCA == "":
		if f.GRPCOnly {
			return nil, errors.New("--tls-grpc-only is for --tls-cert and --tls-key; give both, or leave it out")
		}
		return nil, nil
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("--tls-cert and --tls-key belong together, and --tls-client-ca needs both; give both")
	}
	r := &reloader{files: f, log: log, seen: f.stamp()}
	first, err := f.load()
	if err != nil {
		return nil, err
	}
	r.current = first
	config := first.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.config(), nil }
	return config, nil
}

func (f TLSFiles) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w; name files in PEM form that belong together", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if f.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.ClientCAs, err = dialing.Authorities("--tls-client-ca", f.ClientCA)
	return config, err
}

// stamp returns a string that changes if a file changes.
func (f TLSFiles) stamp() string {
	stamp := ""
	for _, name := range []string{f.Cert, f.Key, f.ClientCA} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintln(name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return stamp
}

type reloader struct {
	files   TLSFiles
	log     *slog.Logger
	mu      sync.Mutex
	current *tls.Config
	seen    string
	looked  time.Time
}

// config returns the current configuration. At most once a second, it checks whether the
// certificate files have changed, and if so, reloads them.
func (r *reloader) config() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) < time.Second {
		return r.current
	}
	r.looked = time.Now()
	if stamp := r.files.stamp(); stamp != r.seen {
		r.seen = stamp
		if config, err := r.files.load(); err != nil {
			r.log.Error("the certificates were not loaded; the previous ones stay in use", "error", err)
		} else {
			r.current = config
		}
	}
	return r.current
}
