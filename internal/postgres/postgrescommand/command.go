// Package postgrescommand implements the commands `provision` and `migrate` of programs with a database. provision runs as the administrator of the
// server, creates the database and its roles, and maps the roles to managed identities. migrate runs after it with the role that owns the database,
// applies the migrations, and grants the rights of the program's own role. So the program itself needs no right to change tables.
package postgrescommand

import "io/fs"

// Main runs the command that the first argument names, and does not return. It returns if the first argument names none. Migrations are the files
// of the program.
func Main(program string, migrations fs.FS, arguments []string) {
	if len(arguments) == 0 {
		return
	}
	switch arguments[0] {
	case ProvisionName:
		runProvision(program, arguments[1:])
	case MigrateName:
		runMigrate(program, migrations, arguments[1:])
	}
}
