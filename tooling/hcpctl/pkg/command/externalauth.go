package command

import (
	"errors"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

func (e *environment) externalAuth() *cobra.Command {
	c := group("externalauth", "Work with a cluster's external authentication, through Azure Resource Manager",
		e.externalAuthCreate(), e.get(externalAuths()), e.list(externalAuths(), "List a cluster's external authentications"),
		e.delete(externalAuths(), "Delete an external authentication and wait until it is gone"))
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
	c.Flags().StringArrayVar(&audiences, "audience", nil, "audience of its tokens; may be given again")
	c.Flags().StringVar(&username, "username-claim", "email", "`claim` that is the user's name")
	c.Flags().StringVar(&prefix, "username-prefix", "", "what is put before it")
	c.Flags().StringVar(&groups, "groups-claim", "", "`claim` that lists the user's groups")
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if !c.Flags().Changed("file") && (issuer == "" || len(audiences) == 0) {
			return errors.New("--issuer and --audience are required, or --file")
		}
		return nil
	}
	return c
}
