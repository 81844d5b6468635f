package postgrescommand

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// ProvisionName is the first argument of a program that selects the command.
const ProvisionName = "provision"

// provisionConnections are those of the pool. Provision uses sessions of its own.
const provisionConnections = 1

// ProvisionOptions are the flags of the command.
type ProvisionOptions struct {
	// Database is the maintenance database of the server, with the role of the administrator.
	Database               postgres.Settings
	Name                   string
	Owner, OwnerObjectID   string
	Runtime, RuntimeObject string
	LogLevel               string
}

// AddFlags registers the options with flags.
func (o *ProvisionOptions) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	flags.StringVar(&o.Name, "database-name", "", "`name` of the database to create")
	flags.StringVar(&o.Owner, "owner", "", "`role` that owns the database and migrates it")
	flags.StringVar(&o.OwnerObjectID, "owner-object-id", "", "object `ID` of the managed identity that logs in as --owner; required with --database-authentication=entra")
	flags.StringVar(&o.Runtime, "runtime", "", "`role` of the program, which can only connect until the command migrate grants it rights")
	flags.StringVar(&o.RuntimeObject, "runtime-object-id", "", "object `ID` of the managed identity that logs in as --runtime; required with --database-authentication=entra")
	flags.StringVar(&o.LogLevel, "log-level", "info", "least severe `level` to log: debug, info, warn, error")
}

// Validate checks the options. An error names the invalid flag.
func (o *ProvisionOptions) Validate() error {
	if err := o.Database.Validate(); err != nil {
		return err
	}
	if o.Database.Authentication == postgres.WithCertificate {
		return fmt.Errorf("--database-authentication: the command %s does not support %s", ProvisionName, postgres.WithCertificate)
	}
	for _, required := range []struct{ flag, value string }{{"database-name", o.Name}, {"owner", o.Owner}, {"runtime", o.Runtime}} {
		if !postgres.ValidName(required.value) {
			return fmt.Errorf("--%s: %q is not a name of 1 to 63 lower-case letters, digits and underscores that begins with a letter", required.flag, required.value)
		}
	}
	if o.Owner == o.Runtime {
		return errors.New("--runtime: the program must not own its database: use another role than --owner")
	}
	for _, id := range []struct{ flag, value string }{{"owner-object-id", o.OwnerObjectID}, {"runtime-object-id", o.RuntimeObject}} {
		if (id.value != "" || o.Database.Authentication == postgres.WithEntra) && !postgres.ValidObjectID(id.value) {
			return fmt.Errorf("--%s: %q is not the object ID of an identity, a UUID in lower case", id.flag, id.value)
		}
	}
	if o.OwnerObjectID != "" && o.OwnerObjectID == o.RuntimeObject {
		return errors.New("--runtime-object-id: the program must not log in as the owner of its database: use another identity than --owner-object-id")
	}
	return nil
}

// runProvision runs the command with the arguments after its name and does not return.
func runProvision(program string, arguments []string) {
	var o ProvisionOptions
	name := program + " " + ProvisionName
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	o.AddFlags(flags)
	process.Parse(flags, arguments, o.Validate)
	process.Run(name, process.Options{LogLevel: o.LogLevel}, func(ctx context.Context, p *process.Process) error {
		return Provision(ctx, name, &o, p.Log)
	})
}

// Provision creates what is missing. It waits while the server is unavailable.
func Provision(ctx context.Context, application string, o *ProvisionOptions, log *slog.Logger) error {
	databaseURL, authentication, err := o.Database.Read(nil)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, postgres.Options{URL: databaseURL, Application: application, MaxConnections: provisionConnections, Authentication: authentication})
	if err != nil {
		return err
	}
	defer pool.Close()
	return postgres.Await(ctx, log, func() error {
		return postgres.Provision(ctx, pool, postgres.ProvisionOptions{Database: o.Name, Log: log,
			Owner:   postgres.DatabaseRole{Name: o.Owner, ObjectID: o.OwnerObjectID},
			Runtime: postgres.DatabaseRole{Name: o.Runtime, ObjectID: o.RuntimeObject}})
	})
}
