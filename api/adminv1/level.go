package adminv1

// Level is what the holder of a break-glass credential of class sre may do in the hosted cluster.
type Level string

// The levels.
const (
	// LevelReader reads everything but secrets.
	LevelReader Level = "reader"
	// LevelAdmin does everything.
	LevelAdmin Level = "admin"
)

// Levels returns all levels in ascending order.
func Levels() []Level { return []Level{LevelReader, LevelAdmin} }

// Role returns the lowest role that permits a level; empty for an unknown level.
func (l Level) Role() Role {
	switch l {
	case LevelReader:
		return Operator
	case LevelAdmin:
		return BreakGlass
	}
	return ""
}

// Class returns the class of a request for a credential of a level; empty for an unknown level.
func (l Level) Class() AccessClass {
	switch l {
	case LevelReader:
		return Operate
	case LevelAdmin:
		return BreakGlassAccess
	}
	return ""
}

// PermittedBy reports whether a role permits a level. No role permits an unknown level.
func (l Level) PermittedBy(role Role) bool {
	return role != "" && (role == l.Role() || l == LevelReader && role == BreakGlass)
}

// Organization returns the organization of certificates of a level, which is a group in the hosted cluster; empty for an unknown
// level.
func (l Level) Organization() string {
	switch l {
	case LevelReader:
		return "system:cluster-readers"
	case LevelAdmin:
		return "system:masters"
	}
	return ""
}
