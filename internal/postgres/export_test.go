package postgres

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// EntraPassword returns the function that requests tokens for a role through client, with the workload identity of the environment.
func EntraPassword(audience, role string, client policy.Transporter) (func(context.Context) (string, error), error) {
	tokens, err := newTokens(audience, role, client)
	if err != nil {
		return nil, err
	}
	return tokens.password, nil
}
