package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/keyrotation"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// keysRotateOptions are the flags of `hcpctl keys rotate`.
type keysRotateOptions struct {
	shard, service, keyset, public, publish string
	controlPlane                            string
	replicas                                []string
	needed                                  time.Duration
	noWait                                  bool
}

func (e *environment) keysRotate() *cobra.Command {
	var o keysRotateOptions
	var kinds []string
	for _, kind := range keyrotation.Kinds() {
		kinds = append(kinds, kind.Name)
	}
	kinds = append(kinds, keyrotation.Audit, etcdKind)
	c := &cobra.Command{
		Use: "rotate KIND", Short: "Replace the key of a keyset by a new one while the processes run", Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: kinds,
		Long: `Replace the key of a keyset by a new one while the processes that use it run.

KIND is one of ` + strings.Join(kinds, ", ") + `.

The command adds a key, waits until all replicas have read it, makes it the primary key, waits until nothing needs the former key, and
removes that. It reads from the metrics of the replicas what they have done. If it is interrupted, run it again: it continues with the
step that was reached.

The kind audit is a key with which a service signs its audit records. The command waits until all replicas of admin, which verifies them, have
the next public key before a process signs with it. The former public key is not removed: hcpctl audit verify accepts what the key signed
before the rotation, and nothing that it signs later.

The kind etcd is the key with which an API server of the local region encrypts etcd: that of a management cluster, or of a control plane. It
has no keyset. All objects that the former key encrypted are written again.

Without --keyset it rotates a key of the local region. With --keyset, name all replicas of the services with --replica, and a program
that stores the files where the replicas read them with --publish.`,
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == etcdKind {
				return e.rotateEtcd(c, o)
			}
			if o.controlPlane != "" {
				return invalid("--control-plane: the kind %s has no key of a control plane", args[0])
			}
			if args[0] == keyrotation.Audit {
				if c.Flags().Changed("former-needed") {
					return invalid("--former-needed: checkpoints that the former key signed stay valid")
				}
				return e.rotateAudit(c.Context(), o)
			}
			if o.service != "" {
				return invalid("--service: the kind %s has one keyset in a region", args[0])
			}
			r, err := e.rotationOf(args[0], o)
			if err != nil {
				return err
			}
			if c.Flags().Changed("former-needed") {
				if r.Kind.Needed == 0 {
					return invalid("--former-needed: the kind %s reports when nothing needs the former key", r.Kind.Name)
				}
				r.Kind.Needed = o.needed
			}
			return e.runRotation(c.Context(), r.Run, r.Keyset+": the key was replaced, and the former key is removed")
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.shard, "shard", "", "provision `shard` of the agent, for the kind agent, or its management cluster, for the kind etcd")
	flags.StringVar(&o.controlPlane, "control-plane", "", "`namespace` of a control plane on the management cluster, for the kind etcd (default: the management cluster itself)")
	flags.StringVar(&o.service, "service", "", "`service` that signs audit records with the key, for the kind audit")
	flags.StringVar(&o.keyset, "keyset", "", "`file` of the keyset, or of the private key of the kind audit (default: that of the local region)")
	flags.StringVar(&o.public, "public-keyset", "", "`file` of the public keyset, or of the public keys of the service, for the kinds agent, intents and audit with --keyset")
	flags.StringArrayVar(&o.replicas, "replica", nil, "`SERVICE=URL` of the metrics of a replica, for example frontend=http://10.0.0.7:8080/metrics; repeat it for all replicas")
	flags.StringVar(&o.publish, "publish", "", "`program` that stores changed files where the replicas read them; its argument is the file")
	flags.DurationVar(&o.needed, "former-needed", 0, "how long values of the former key are in use, in place of the longest possible time: what is older cannot be used any more")
	flags.BoolVar(&o.noWait, "no-wait", false, "fail instead of waiting; call the command again later")
	return c
}

// runRotation runs a rotation, and prints that it succeeded.
func (e *environment) runRotation(ctx context.Context, run func(context.Context) error, done string) error {
	err := run(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted("%w", err)
	case err == nil:
		fmt.Fprintln(e.err, done)
	}
	return err
}

// rotationOptions returns the options of a rotation that publishes some files, whose names are read when it does.
func (e *environment) rotationOptions(o keysRotateOptions, files ...*string) keyrotation.Options {
	options := keyrotation.Options{NoWait: o.noWait, HTTP: &http.Client{Transport: transport.System()}, Now: time.Now, Note: func(text string) { fmt.Fprintln(e.err, text) }}
	if o.publish != "" {
		options.Publish = func(ctx context.Context) error { return e.publish(ctx, o.publish, files...) }
	}
	return options
}

// rotationOf returns the rotation that the flags describe.
func (e *environment) rotationOf(name string, o keysRotateOptions) (*keyrotation.Rotation, error) {
	kind, err := keyrotation.KindOf(name)
	if err != nil {
		return nil, err
	}
	if kind.PerShard != (o.shard != "") {
		if kind.PerShard {
			return nil, invalid("--shard: required for the kind %s", name)
		}
		return nil, invalid("--shard: the kind %s has one keyset in a region", name)
	}
	if o.needed < 0 {
		return nil, invalid("--former-needed: must not be negative")
	}
	r := &keyrotation.Rotation{Kind: kind, Keyset: o.keyset, PublicKeyset: o.public, Shard: o.shard}
	r.Options = e.rotationOptions(o, &r.Keyset, &r.PublicKeyset)
	if o.keyset == "" {
		return r, e.rotateLocal(r, o)
	}
	if r.Replicas, err = o.replicasByService(); err == nil && len(kind.Verifiers) > 0 && len(r.Replicas[kind.Verifiers[0]]) == 0 {
		err = invalid("--replica: the metrics of all replicas of %s are required: they verify what the keys sign", kind.Verifiers[0])
	}
	return r, err
}

// replicasByService returns the URLs of --replica.
func (o keysRotateOptions) replicasByService() (map[string][]string, error) {
	replicas := map[string][]string{}
	for _, replica := range o.replicas {
		service, url, ok := strings.Cut(replica, "=")
		if !ok || !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://") {
			return nil, invalid("--replica: %q is not SERVICE=URL", replica)
		}
		replicas[service] = append(replicas[service], url)
	}
	return replicas, nil
}

// rotateLocal completes a rotation of a key of the local region.
func (e *environment) rotateLocal(r *keyrotation.Rotation, o keysRotateOptions) error {
	dir, endpoints, err := e.localKeys(o)
	if err != nil {
		return err
	}
	keyset, err := local.KeysetOf(dir, r.Kind.Name, r.Shard)
	if err != nil {
		return err
	}
	r.Keyset, r.PublicKeyset, r.Replicas = keyset.File, keyset.Public, map[string][]string{}
	for _, service := range append([]string{r.Kind.Service}, r.Kind.Others...) {
		process := service
		if service == "maestro-agent" {
			process = r.Shard + "-" + service
		}
		r.Replicas[service] = []string{metricsURL(endpoints, process)}
	}
	for process := range endpoints.Ops {
		for _, verifier := range r.Kind.Verifiers {
			// The name of a management cluster may be before that of the program.
			if process == verifier || strings.HasSuffix(process, "-"+verifier) {
				r.Replicas[verifier] = append(r.Replicas[verifier], metricsURL(endpoints, process))
			}
		}
	}
	return nil
}

// metricsURL returns the URL of the metrics of a process of the local region.
func metricsURL(endpoints local.Endpoints, process string) string {
	return "http://" + endpoints.Ops[process] + "/metrics"
}

// localKeys returns the state folder and the endpoints of the local region.
func (e *environment) localKeys(o keysRotateOptions) (dir string, endpoints local.Endpoints, err error) {
	if o.public != "" || o.publish != "" || len(o.replicas) > 0 {
		return "", endpoints, invalid("--keyset: required with --public-keyset, --publish and --replica")
	}
	if dir, err = e.stateFolder(); err != nil {
		return "", endpoints, err
	}
	if endpoints, err = local.Describe(dir); err != nil {
		return "", endpoints, notRunning(err)
	}
	return dir, endpoints, nil
}

// publish calls a program for each file of a rotation. Only its error output is shown: the files are secret.
func (e *environment) publish(ctx context.Context, program string, files ...*string) error {
	for _, file := range files {
		if *file == "" {
			continue
		}
		command := exec.Command(program, *file)
		command.Stderr = e.err
		running, err := spawn.Start(command, syscall.SIGKILL)
		if err != nil {
			return err
		}
		select {
		case <-running.Exited():
		case <-ctx.Done():
			running.Kill()
			return ctx.Err()
		}
		if err := running.Err(); err != nil {
			return fmt.Errorf("%s %s: %w", program, *file, err)
		}
	}
	return nil
}
