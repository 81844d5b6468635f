package command

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/keyrotation"
)

// keys returns the commands for keysets: one that rotates a key, and one for each step of a rotation by hand.
func (e *environment) keys() *cobra.Command {
	return group("keys", "Rotate the keys of a keyset", e.keysRotate(), e.keysList(), e.keysAdd(), e.keysPromote(), e.keysRemove(), e.keysPublic())
}

// byHand calls change for a keyset, unless keysRotate rotates its key.
func byHand(keyset string, change func() error) error {
	unlock, err := keyfile.Lock(keyset)
	if err != nil {
		return err
	}
	defer unlock()
	if rotating, err := keyrotation.InProgress(keyset); err != nil || rotating {
		return cmp.Or(err, fmt.Errorf("%s: a rotation with `hcpctl keys rotate` is in progress: call that again to complete it", keyset))
	}
	return change()
}

// ofFile makes a command fail with exitNotFound if the file of its first argument does not exist.
func ofFile(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, err := os.Stat(args[0]); errors.Is(err, fs.ErrNotExist) {
			return notFound("there is no keyset %s", args[0])
		}
		return run(c, args)
	}
	return c
}

func (e *environment) keysList() *cobra.Command {
	return ofFile(&cobra.Command{
		Use: "list FILE", Short: "List the keys of a keyset, without their content",
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := keyfile.List(args[0])
			if err != nil {
				return err
			}
			return display.List(e.out, keys, func(key keyfile.Key) display.Row {
				return display.Row{{"ID", strconv.FormatUint(uint64(key.ID), 10)}, {"TYPE", key.Type}, {"PRIMARY", strconv.FormatBool(key.Primary)}, {"ENABLED", strconv.FormatBool(key.Enabled)}}
			})
		},
	})
}

func (e *environment) keysAdd() *cobra.Command {
	return ofFile(&cobra.Command{
		Use: "add FILE", Short: "Add a key that does not seal or sign yet, and print its ID",
		RunE: func(_ *cobra.Command, args []string) error {
			var id uint32
			if err := byHand(args[0], func() (err error) { id, err = keyfile.Add(args[0]); return err }); err != nil {
				return err
			}
			fmt.Fprintln(e.out, id)
			fmt.Fprintf(e.err, "when all processes have read the keyset: hcpctl keys promote %s %d\n", args[0], id)
			return nil
		},
	})
}

func (e *environment) keysPromote() *cobra.Command {
	return ofKey(&cobra.Command{Use: "promote FILE ID", Short: "Make a key the primary key, which seals or signs"}, keyfile.Promote)
}

func (e *environment) keysRemove() *cobra.Command {
	return ofKey(&cobra.Command{
		Use: "remove FILE ID", Short: "Remove a key that is not needed any more",
		Long: `Remove a key that is not the primary key. Nothing opens or verifies what it sealed or signed after that: make sure that nothing needs it.`,
	}, keyfile.Remove)
}

func (e *environment) keysPublic() *cobra.Command {
	return ofFile(&cobra.Command{
		Use: "public FILE PUBLIC-FILE", Short: "Write the public keyset that belongs to a private one",
		RunE: func(_ *cobra.Command, args []string) error { return keyfile.WritePublic(args[0], args[1]) },
	})
}

// ofKey completes a command that changes a key of a keyset.
func ofKey(c *cobra.Command, change func(keyset string, id uint32) error) *cobra.Command {
	c.RunE = func(_ *cobra.Command, args []string) error {
		id, err := keyID(args[1])
		if err != nil {
			return err
		}
		return byHand(args[0], func() error { return change(args[0], id) })
	}
	return ofFile(c)
}

func keyID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, invalid("ID: %q is not the ID of a key: see `hcpctl keys list`", text)
	}
	return uint32(id), nil
}
