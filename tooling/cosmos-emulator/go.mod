module github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator

go 1.26.0

require (
	github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos v1.5.0
	go.etcd.io/bbolt v1.4.3
)

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.21.0 // indirect
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.11.2 // indirect
	golang.org/x/net v0.52.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/text v0.35.0 // indirect
)
