module github.com/hcpmesh/hcpmesh/test/clients/sdk

go 1.26.0

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.21.0
	github.com/Azure/azure-sdk-for-go/sdk/azidentity v1.13.1
	hcpmesh.test/armredhatopenshifthcp v0.0.0
)

// What generate.mjs wrote last; it builds with the client of each api-version in turn.
replace hcpmesh.test/armredhatopenshifthcp => ../../../.build/sdks/go/2026-09-01-preview/armredhatopenshifthcp
