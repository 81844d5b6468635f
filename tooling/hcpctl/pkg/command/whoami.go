package command

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/spf13/cobra"
)

func (e *environment) whoami() *cobra.Command {
	return view(e, &cobra.Command{Use: "whoami", Short: "Show your identity and the roles that your groups give"}, adminv1.ReadMe, noQuery, asTable(e, func(me *adminv1.Identity) error {
		roles := make([]string, len(me.Roles))
		for i, role := range me.Roles {
			roles[i] = string(role)
		}
		_, err := fmt.Fprintf(e.out, "%s has the roles %s\n", me.Name, strings.Join(roles, ", "))
		return err
	}))
}
