package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

func externalAuth() shape.Field {
	return proxy(
		shape.State("provisioningState"),
		conditionField[hub.ExternalAuthStatus](),
		shape.Object("issuer",
			shape.Value("url"),
			shape.Value("audiences").AtMost(hub.MaxAudiences),
			shape.Value("ca"),
		),
		shape.List("clients",
			shape.Object("component",
				shape.Value("name"),
				shape.Value("authClientNamespace"),
			),
			shape.Value("clientId"),
			shape.Value("extraScopes").AtMost(hub.MaxExtraScopes),
			shape.Value("type").OneOf("Confidential", "Public").Mandatory(),
		).AtMost(hub.MaxClients),
		shape.Object("claim",
			shape.Object("mappings",
				shape.Object("username",
					shape.Value("claim"),
					shape.Value("prefix"),
					shape.Value("prefixPolicy").OneOf("None", "Prefix", "NoPrefix").Default("None").DefaultIfNull(),
				),
				shape.Object("groups",
					shape.Value("claim"),
					shape.Value("prefix"),
				),
			),
			shape.List("validationRules",
				shape.Value("type").OneOf("RequiredClaim"),
				shape.Object("requiredClaim",
					shape.Value("claim"),
					shape.Value("requiredValue"),
				),
			).AtMost(hub.MaxValidationRules),
		),
	)
}
