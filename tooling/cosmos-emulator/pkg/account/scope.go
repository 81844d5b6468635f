package account

import (
	"fmt"
	"strings"
)

// Scope is an account (both fields are empty), a database, or a container.
type Scope struct{ Database, Container string }

// ParseScope parses /, /dbs/DATABASE or /dbs/DATABASE/colls/CONTAINER.
func ParseScope(text string) (Scope, error) {
	if text == "/" {
		return Scope{}, nil
	}
	parts := strings.Split(text, "/")
	switch {
	case len(parts) == 3 && parts[0] == "" && parts[1] == "dbs" && parts[2] != "":
		return Scope{Database: parts[2]}, nil
	case len(parts) == 5 && parts[0] == "" && parts[1] == "dbs" && parts[2] != "" && parts[3] == "colls" && parts[4] != "":
		return Scope{Database: parts[2], Container: parts[4]}, nil
	}
	return Scope{}, fmt.Errorf("%q is not /, /dbs/DATABASE or /dbs/DATABASE/colls/CONTAINER", text)
}

// String returns the scope as Cosmos DB's errors show it.
func (s Scope) String() string {
	switch {
	case s.Database == "":
		return "/"
	case s.Container == "":
		return "dbs/" + s.Database
	}
	return "dbs/" + s.Database + "/colls/" + s.Container
}

// contains reports whether other is s or below s.
func (s Scope) contains(other Scope) bool {
	return (s.Database == "" || s.Database == other.Database) && (s.Container == "" || s.Container == other.Container)
}
