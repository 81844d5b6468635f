package command

import (
	"errors"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

func (e *environment) externalAuth() *cobra.Command {
	c := group("externalauth", "Manage external authentications",
		e.externalAuthCreate(), e.get(externalAuths()), e.list(externalAuths(), "List the external authentications of a cluster"),
		e.externalAuthUpdate(), e.delete(externalAuths(), "Delete an external authentication"))
	e.addARMFlags(c)
	return c
}

func (e *environment) externalAuthCreate() *cobra.Command {
	var issuer, username, prefix, groups string
	var audiences []string
	c := e.create(externalAuths(), func([]string, string) (armclient.Resource, error) {
		mappings := map[string]any{"username": map[string]any{"claim": username, "prefixPolicy": "NoPrefix"}}
		if prefix != "" {
			mappings["username"] = map[string]any{"claim": username, "prefixPolicy": "Prefix", "prefix": prefix}
		}
		if groups != "" {
			mappings["groups"] = map[string]any{"claim": groups}
		}
		return armclient.Resource{"properties": map[string]any{
			"issuer": map[string]any{"url": issuer, "audiences": audiences},
			"claim":  map[string]any{"mappings": mappings},
		}}, nil
	})
	c.Flags().StringVar(&issuer, "issuer", "", "`URL` of the OpenID Connect issuer")
	c.Flags().StringArrayVar(&audiences, "audience", nil, "`audience` of the issuer's tokens; repeatable")
	c.Flags().StringVar(&username, "username-claim", "email", "`claim` with the user name")
	c.Flags().StringVar(&prefix, "username-prefix", "", "`prefix` of user names")
	c.Flags().StringVar(&groups, "groups-claim", "", "`claim` with the groups of the user")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("file") && (issuer == "" || len(audiences) == 0) {
			return errors.New("--issuer and --audience are required, or --file")
		}
		return nil
	}
	return c
}

// externalAuthUpdate returns the command that changes an external authentication. Most of its properties are lists and objects, which a file has.
func (e *environment) externalAuthUpdate() *cobra.Command {
	c := e.updateCommand(externalAuths(), nil)
	_ = c.MarkFlagRequired("file")
	return c
}
