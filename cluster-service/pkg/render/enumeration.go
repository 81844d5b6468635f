package render

import (
	"fmt"
	"strings"
)

// unsupported returns the error for an enumeration value that cannot be rendered. It names the field, its value and the
// supported values, so that a new value is never rendered as a default by accident.
func unsupported[T fmt.Stringer](field string, value T, supported ...T) error {
	var names []string
	for _, s := range supported {
		names = append(names, s.String())
	}
	return fmt.Errorf("%s: unsupported value %s: supported values are %s", field, value, strings.Join(names, ", "))
}
