package postgrescommand

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// MigrateName is the first argument of a program that selects the command.
const MigrateName = "migrate"

// migrateConnections are one that holds the lock of the migrations and one that applies them.
const migrateConnections = 2

// MigrateOptions are the flags of the command.
type MigrateOptions struct {
	Database    postgres.Settings
	IdentityDir string
	GrantTo     string
	LogLevel    string
}

// AddFlags registers the options with flags.
func (o *MigrateOptions) AddFlags(flags *flag.FlagSet) {
	o.Database.AddFlags(flags)
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt, for --database-authentication=certificate")
	flags.StringVar(&o.GrantTo, "grant-to", "", "`role` of the program, which gets the right to read and change rows; empty grants nothing")
	flags.StringVar(&o.LogLevel, "log-level", "info", "least severe `level` to log: debug, info, warn, error")
}

// Validate checks the options. An error names the invalid flag.
func (o *MigrateOptions) Validate() error {
	if err := process.Required("identity-dir", o.IdentityDir); err != nil && o.Database.Authentication == postgres.WithCertificate {
		return err
	}
	return o.Database.Validate()
}

// runMigrate runs the command with the arguments after its name and does not return. Migrations are the files of the program.
func runMigrate(program string, migrations fs.FS, arguments []string) {
	var o MigrateOptions
	name := program + " " + MigrateName
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	o.AddFlags(flags)
	process.Parse(flags, arguments, o.Validate)
	process.Run(name, process.Options{LogLevel: o.LogLevel}, func(ctx context.Context, p *process.Process) error {
		return Migrate(ctx, name, &o, migrations, p.Log)
	})
}

// Migrate applies the migrations and grants the rights. It waits while the database is unavailable.
func Migrate(ctx context.Context, application string, o *MigrateOptions, migrations fs.FS, log *slog.Logger) error {
	var identity *mesh.Identity
	if o.IdentityDir != "" {
		var err error
		if identity, err = mesh.LoadIdentity(o.IdentityDir); err != nil {
			return fmt.Errorf("--identity-dir: %w", err)
		}
	}
	databaseURL, authentication, err := o.Database.Read(identity)
	if err != nil {
		return err
	}
	pool, err := postgres.Open(ctx, postgres.Options{URL: databaseURL, Application: application, MaxConnections: migrateConnections, Authentication: authentication})
	if err != nil {
		return err
	}
	defer pool.Close()
	return postgres.Await(ctx, log, func() error {
		err := postgres.Migrate(ctx, pool, migrations, log)
		if err == nil && o.GrantTo != "" {
			err = postgres.Grant(ctx, pool, o.GrantTo)
		}
		return err
	})
}
