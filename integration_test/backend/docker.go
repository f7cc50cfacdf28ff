package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

const (
	// ownerLabel is the container label that identifies the process to which the container belongs.
	ownerLabel = "ratelimit-functions.test.owner"

	// mountPoint is the directory, inside containers, with the clock shim and the clock's file.
	mountPoint = "/ratelimit-clock"
)

// docker starts servers as containers on the machine's own network, so that they listen on
// 127.0.0.1.
type docker struct {
	api   *client.Client
	dir   string // directory mounted into the containers
	owner string
}

// errNoDocker means that no usable Docker engine is available.
var errNoDocker = errors.New("no Docker engine answers")

// newDocker connects to the engine. It removes containers that killed runs left behind.
func newDocker(ctx context.Context, dir string) (*docker, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("%w that shares this machine's network: containers are used on Linux only", errNoDocker)
	}
	// This package removes its containers itself, so testcontainers needs no cleanup container. The
	// containers use the host's network, so they are reached at 127.0.0.1.
	for name, value := range map[string]string{
		"TESTCONTAINERS_RYUK_DISABLED": "true",
		"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
	} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	tclog.SetDefault(tclog.NewNoopLogger())

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoDocker, err)
	}
	d := &docker{api: found.Client, dir: dir, owner: ownerOf(os.Getpid())}
	if _, err := d.api.Ping(ctx, client.PingOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", errNoDocker, err), d.close())
	}
	if err := d.removeStale(ctx); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *docker) close() error { return d.api.Close() }

func (d *docker) has(ctx context.Context, image string) bool {
	_, err := d.api.ImageInspect(ctx, image)
	return err == nil
}

func (d *docker) removeStale(ctx context.Context) error {
	list, err := d.api.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", ownerLabel),
	})
	if err != nil {
		return fmt.Errorf("looking for containers of earlier runs: %w", err)
	}
	for _, c := range list.Items {
		if !stale(c.Labels[ownerLabel], time.Unix(c.Created, 0)) {
			continue
		}
		if err := d.removeContainer(ctx, c.ID); err != nil {
			return fmt.Errorf("removing a container of an earlier run: %w", err)
		}
	}
	return nil
}

func (d *docker) removeContainer(ctx context.Context, id string) error {
	_, err := d.api.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

func (d *docker) launch(ctx context.Context, s spec, options []string) (instance, error) {
	env := map[string]string{}
	if s.clock != nil {
		// The whole directory is mounted at mountPoint, so the file has another path in the
		// container.
		file, err := filepath.Rel(d.dir, s.clock.Path())
		if err != nil {
			return nil, err
		}
		env["LD_PRELOAD"] = mountPoint + "/" + clock.LibraryName
		env[clock.Env] = mountPoint + "/" + file
	}
	c, err := testcontainers.Run(ctx, s.image,
		testcontainers.WithCmd(options...),
		testcontainers.WithEnv(env),
		testcontainers.WithLabels(map[string]string{ownerLabel: d.owner}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.NetworkMode = "host"
			h.Binds = []string{d.dir + ":" + mountPoint + ":ro"}
		}),
	)
	if err != nil {
		if c != nil {
			err = errors.Join(err, d.removeContainer(context.WithoutCancel(ctx), c.GetContainerID()))
		}
		return nil, err
	}
	return &dockerInstance{docker: d, id: c.GetContainerID()}, nil
}

type dockerInstance struct {
	docker *docker
	id     string
}

func (i *dockerInstance) kill(ctx context.Context) error {
	_, err := i.docker.api.ContainerKill(ctx, i.id, client.ContainerKillOptions{Signal: "SIGKILL"})
	if err != nil {
		return err
	}
	return Until(ctx, "the container to end", func() error {
		if i.exited(ctx) {
			return nil
		}
		return errors.New("it still runs")
	})
}

// pause tries several times, because the kernel may fail to freeze a busy process.
func (i *dockerInstance) pause(ctx context.Context) (err error) {
	for range 10 {
		if _, err = i.docker.api.ContainerPause(ctx, i.id, client.ContainerPauseOptions{}); err == nil {
			break
		}
	}
	return err
}

func (i *dockerInstance) resume(ctx context.Context) error {
	_, err := i.docker.api.ContainerUnpause(ctx, i.id, client.ContainerUnpauseOptions{})
	return err
}

func (i *dockerInstance) restart(ctx context.Context) error {
	if !i.exited(ctx) {
		return errRunning
	}
	_, err := i.docker.api.ContainerStart(ctx, i.id, client.ContainerStartOptions{})
	return err
}

// remove uses its own context, because servers must be removed even if the run was canceled.
func (i *dockerInstance) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return i.docker.removeContainer(ctx, i.id)
}

func (i *dockerInstance) exited(ctx context.Context) bool {
	r, err := i.docker.api.ContainerInspect(ctx, i.id, client.ContainerInspectOptions{})
	return err == nil && r.Container.State != nil && !r.Container.State.Running
}

func (i *dockerInstance) log() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := i.docker.api.ContainerLogs(ctx, i.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, r); err != nil {
		return text.String() + "\n" + err.Error()
	}
	return text.String()
}
