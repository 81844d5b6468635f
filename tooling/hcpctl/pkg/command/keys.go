package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// keys returns the commands that rotate the keys of a keyset, one step each, because the processes must have read the keyset between
// two steps.
func (e *environment) keys() *cobra.Command {
	return group("keys", "Rotate the keys of a keyset", e.keysList(), e.keysAdd(), e.keysPromote(), e.keysRemove(), e.keysPublic())
}

func (e *environment) keysList() *cobra.Command {
	return &cobra.Command{
		Use: "list FILE", Short: "List the keys of a keyset, without their content", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := keyfile.List(args[0])
			if err != nil {
				return err
			}
			var rows [][]string
			for _, key := range keys {
				rows = append(rows, []string{strconv.FormatUint(uint64(key.ID), 10), key.Type, strconv.FormatBool(key.Primary), strconv.FormatBool(key.Enabled)})
			}
			return display.Table(e.out, []string{"ID", "TYPE", "PRIMARY", "ENABLED"}, rows)
		},
	}
}

func (e *environment) keysAdd() *cobra.Command {
	return &cobra.Command{
		Use: "add FILE", Short: "Add a key that does not seal or sign yet, and print its ID", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := keyfile.Add(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintln(e.out, id)
			fmt.Fprintf(e.err, "when all processes have read the keyset: hcpctl keys promote %s %d\n", args[0], id)
			return nil
		},
	}
}

func (e *environment) keysPromote() *cobra.Command {
	return &cobra.Command{
		Use: "promote FILE ID", Short: "Make a key the primary key, which seals or signs", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := keyID(args[1])
			if err != nil {
				return err
			}
			return keyfile.Promote(args[0], id)
		},
	}
}

func (e *environment) keysRemove() *cobra.Command {
	return &cobra.Command{
		Use: "remove FILE ID", Short: "Remove a key that is not needed any more",
		Long: `Remove a key that is not the primary key. Nothing opens or verifies what it sealed or signed after that: make sure that nothing needs it.`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := keyID(args[1])
			if err != nil {
				return err
			}
			return keyfile.Remove(args[0], id)
		},
	}
}

func (e *environment) keysPublic() *cobra.Command {
	return &cobra.Command{
		Use: "public FILE PUBLIC-FILE", Short: "Write the public keyset of an agent's keyset", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error { return seal.WritePublic(args[0], args[1]) },
	}
}

func keyID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("ID: %q is not the ID of a key: see `hcpctl keys list`", text)
	}
	return uint32(id), nil
}
