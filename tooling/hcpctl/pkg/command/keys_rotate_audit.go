package command

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/keyrotation"
)

// rotateAudit replaces the key with which a service signs audit checkpoints.
func (e *environment) rotateAudit(ctx context.Context, o keysRotateOptions) error {
	switch {
	case o.service == "":
		return invalid("--service: required for the kind audit")
	case o.shard != "":
		return invalid("--shard: the kind audit has a key for each service")
	case o.keyset != "" && o.public == "":
		return invalid("--public-keyset: required with --keyset")
	}
	const verifier = "admin"
	r := &keyrotation.AuditRotation{Service: o.service, Key: o.keyset, Public: o.public}
	r.Options = e.rotationOptions(o, &r.Key, &r.Public)
	if o.keyset == "" {
		dir, endpoints, err := e.localKeys(o)
		if err != nil {
			return err
		}
		key, err := local.AuditKeyOf(dir, o.service)
		if err != nil {
			return err
		}
		r.Key, r.Public = key.File, key.Public
		for _, process := range key.Processes {
			if endpoints.Ops[process] == "" {
				return fmt.Errorf("the local region has no metrics of the process %s", process)
			}
			r.Replicas = append(r.Replicas, metricsURL(endpoints, process))
		}
		r.Verifiers = []string{metricsURL(endpoints, verifier)}
	} else {
		replicas, err := o.replicasByService()
		if err != nil {
			return err
		}
		for service := range replicas {
			if service != o.service && service != verifier {
				return invalid("--replica: %s does not sign with the key of %s", service, o.service)
			}
		}
		r.Replicas, r.Verifiers = replicas[o.service], replicas[verifier]
	}
	return e.runRotation(ctx, r.Run, r.Key+": the key was replaced, and verifications accept the former key only for earlier records")
}
