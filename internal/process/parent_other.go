//go:build !linux

package process

import "errors"

func dieWithParent() error {
	return errors.New("--die-with-parent needs Linux")
}
