package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// DatabaseRole is a role of one database.
type DatabaseRole struct {
	Name string
	// ObjectID is the object ID of the managed identity that logs in as the role. Without one, the server authenticates the role in
	// another way.
	ObjectID string
}

// ProvisionOptions are a database of one service and its roles.
type ProvisionOptions struct {
	Database string
	// Owner owns the database and migrates it.
	Owner DatabaseRole
	// Runtime is the role of the service. It can connect, and has the rights that the owner grants it.
	Runtime DatabaseRole
	Log     *slog.Logger
}

var sqlName, objectID = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`), regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// ValidName reports whether a database or role may have a name: lower-case letters, digits and underscores, as in the configuration.
func ValidName(name string) bool { return sqlName.MatchString(name) }

// ValidObjectID reports whether text is an object ID of Entra ID, a UUID in lower case.
func ValidObjectID(text string) bool { return objectID.MatchString(text) }

const (
	// provisionLock is the advisory lock of the session that provisions. One at a time does.
	provisionLock = 0x6863706d70
	// entraProvider is the provider of the security labels that map roles to identities. Only servers in Azure have it.
	entraProvider = "pgaadauth"
	// invalidParameter is the SQLSTATE of a security label whose provider the server does not have.
	invalidParameter = "22023"
	// revokeTimeout bounds the statement that ends the membership in the owner after a failure.
	revokeTimeout = 10 * time.Second
)

// Provision creates a database with its roles, and changes what exists to what it would create. It executes only statements that change
// something, and nothing of it is lost if it ends in between: the next call continues.
//
// pool connects to the maintenance database as an administrator, who is no superuser: it can create roles and databases, as an administrator
// of Azure Database for PostgreSQL can. There a role is mapped to an identity by a security label, and the schema public belongs to the
// administrators instead of the owner of the database.
func Provision(ctx context.Context, pool *pgxpool.Pool, options ProvisionOptions) error {
	session, err := Connect(ctx, pool)
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx))
	if _, err := session.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(provisionLock)); err != nil {
		return fmt.Errorf("waiting for another provisioning: %w", err)
	}
	p := &provisioning{ProvisionOptions: options, session: session}
	if err := session.QueryRow(ctx, "SELECT current_user").Scan(&p.administrator); err != nil {
		return fmt.Errorf("reading the role of the session: %w", err)
	}
	for _, role := range []DatabaseRole{options.Owner, options.Runtime} {
		if err := p.role(ctx, role); err != nil {
			return fmt.Errorf("provisioning the role %s: %w", role.Name, err)
		}
	}
	if err := p.database(ctx); err != nil {
		return fmt.Errorf("provisioning the database %s: %w", options.Database, err)
	}
	if err := p.schema(ctx, pool); err != nil {
		return fmt.Errorf("provisioning the schema public of the database %s: %w", options.Database, err)
	}
	return nil
}

// provisioning is a session of the administrator, in the maintenance database.
type provisioning struct {
	ProvisionOptions
	session       *pgx.Conn
	administrator string
}

// role creates a role. One that exists loses what it would not have got. It is an error if the administrator cannot take that from it.
func (p *provisioning) role(ctx context.Context, role DatabaseRole) error {
	if role.Name == p.administrator {
		return errors.New("it is the role of the administrator: use another name")
	}
	name := pgx.Identifier{role.Name}.Sanitize()
	var privileged, different, member bool
	err := p.session.QueryRow(ctx, `SELECT rolsuper OR rolreplication OR rolbypassrls, rolcreaterole OR rolcreatedb OR NOT rolcanlogin,
		EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid) FROM pg_roles r WHERE rolname = $1`, role.Name).Scan(&privileged, &different, &member)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		if _, err := p.session.Exec(ctx, "CREATE ROLE "+name+" LOGIN"); err != nil {
			return err
		}
		p.Log.InfoContext(ctx, "database role created", logkey.Name, role.Name)
	case err != nil:
		return err
	case privileged:
		return errors.New("it exists and is a superuser, replicates or bypasses row security: use another name")
	case member:
		return errors.New("it exists and is a member of another role: revoke that, or use another name")
	case different:
		if _, err := p.session.Exec(ctx, "ALTER ROLE "+name+" LOGIN NOCREATEDB NOCREATEROLE"); err != nil {
			return err
		}
		p.Log.InfoContext(ctx, "database role restricted", logkey.Name, role.Name)
	}
	if role.ObjectID == "" {
		return nil
	}
	return p.mapIdentity(ctx, role)
}

// mapIdentity lets an identity log in as a role. A role has one identity.
func (p *provisioning) mapIdentity(ctx context.Context, role DatabaseRole) error {
	var current string
	err := p.session.QueryRow(ctx, `SELECT label FROM pg_shseclabel l JOIN pg_roles r ON r.oid = l.objoid
		WHERE l.classoid = 'pg_authid'::regclass AND l.provider = $1 AND r.rolname = $2`, entraProvider, role.Name).Scan(&current)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	label := "aadauth,oid=" + role.ObjectID + ",type=service"
	if current == label {
		return nil
	}
	// The statement accepts no parameters. An object ID has no character that ends the text.
	_, err = p.session.Exec(ctx, fmt.Sprintf("SECURITY LABEL FOR %s ON ROLE %s IS '%s'", entraProvider, pgx.Identifier{role.Name}.Sanitize(), label))
	if Code(err) == invalidParameter {
		return fmt.Errorf("the server accepts no identities of Entra ID: %w", err)
	}
	if err != nil {
		return fmt.Errorf("mapping it to the identity %s: %w", role.ObjectID, err)
	}
	p.Log.InfoContext(ctx, "database role mapped to an identity", logkey.Name, role.Name, logkey.ObjectID, role.ObjectID)
	return nil
}

// database creates the database of the owner, and lets only both roles and the administrator connect to it.
func (p *provisioning) database(ctx context.Context) error {
	var owner string
	err := p.session.QueryRow(ctx, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = $1", p.Database).Scan(&owner)
	missing := errors.Is(err, pgx.ErrNoRows)
	switch {
	case missing:
	case err != nil:
		return err
	case owner != p.Owner.Name:
		return fmt.Errorf("it exists and belongs to the role %s, not to %s: change its owner", owner, p.Owner.Name)
	default:
		var permitted bool
		if err := p.session.QueryRow(ctx, `SELECT has_database_privilege($2, $1, 'CONNECT') AND has_database_privilege(current_user, $1, 'CONNECT') AND
			NOT has_database_privilege('public', $1, 'CONNECT') AND NOT has_database_privilege('public', $1, 'TEMPORARY') AND
			NOT EXISTS (SELECT FROM pg_auth_members WHERE roleid = $3::text::regrole AND member = current_user::regrole AND grantor = current_user::regrole)`,
			p.Database, p.Runtime.Name, p.Owner.Name).Scan(&permitted); err != nil || permitted {
			return err
		}
	}
	return p.asMember(ctx, func() error {
		name, owner := pgx.Identifier{p.Database}.Sanitize(), pgx.Identifier{p.Owner.Name}.Sanitize()
		if missing {
			if _, err := p.session.Exec(ctx, "CREATE DATABASE "+name+" OWNER "+owner+" TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"); err != nil {
				return err
			}
			p.Log.InfoContext(ctx, "database created", logkey.Name, p.Database)
		}
		return pgx.BeginFunc(ctx, p.session, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SET LOCAL ROLE "+owner+"; REVOKE ALL ON DATABASE "+name+" FROM PUBLIC; GRANT CONNECT ON DATABASE "+name+" TO "+
				pgx.Identifier{p.Runtime.Name}.Sanitize()+", "+pgx.Identifier{p.administrator}.Sanitize())
			return err
		})
	})
}

// asMember calls do while the administrator is a member of the owner, which PostgreSQL requires for what belongs to the owner.
func (p *provisioning) asMember(ctx context.Context, do func() error) (err error) {
	owner := pgx.Identifier{p.Owner.Name}.Sanitize()
	if _, err := p.session.Exec(ctx, "GRANT "+owner+" TO CURRENT_USER"); err != nil {
		return fmt.Errorf("becoming a member of its owner: %w", err)
	}
	defer func() {
		// If the session is gone, the next call ends the membership.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
		defer cancel()
		if _, failed := p.session.Exec(limited, "REVOKE "+owner+" FROM CURRENT_USER"); failed != nil && err == nil {
			err = fmt.Errorf("ending the membership in its owner: %w", failed)
		}
	}()
	return do()
}

// schema lets the owner create tables in the schema public, and grant its use. PostgreSQL gives the schema to the owner of the database;
// Azure gives it to the administrators.
func (p *provisioning) schema(ctx context.Context, pool *pgxpool.Pool) error {
	session, err := connectTo(ctx, pool, p.Database)
	if err != nil {
		return err
	}
	defer session.Close(context.WithoutCancel(ctx))
	permitted := func() (granted bool, err error) {
		err = session.QueryRow(ctx, `SELECT has_schema_privilege($1, 'public', 'CREATE WITH GRANT OPTION') AND
			has_schema_privilege($1, 'public', 'USAGE WITH GRANT OPTION')`, p.Owner.Name).Scan(&granted)
		return granted, err
	}
	if granted, err := permitted(); err != nil || granted {
		return err
	}
	if _, err := session.Exec(ctx, "GRANT USAGE, CREATE ON SCHEMA public TO "+pgx.Identifier{p.Owner.Name}.Sanitize()+" WITH GRANT OPTION"); err != nil {
		return err
	}
	// PostgreSQL grants with a warning what the administrator may not grant.
	if granted, err := permitted(); err != nil || !granted {
		return errors.Join(err, fmt.Errorf("the administrator %s may not grant its use to %s", p.administrator, p.Owner.Name))
	}
	p.Log.InfoContext(ctx, "schema public granted to the owner", logkey.Name, p.Database)
	return nil
}
