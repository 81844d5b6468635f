module github.com/hcpmesh/hcpmesh/test

go 1.26.0

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.21.0
	github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources v1.2.0
	github.com/hcpmesh/hcpmesh/api v0.0.0
	github.com/hcpmesh/hcpmesh/dev-infrastructure v0.0.0
	github.com/hcpmesh/hcpmesh/internal v0.0.0
	github.com/hcpmesh/hcpmesh/tooling/hcpctl v0.0.0
	github.com/jackc/pgx/v5 v5.11.0
	google.golang.org/grpc v1.78.0
	k8s.io/api v0.35.4
	k8s.io/apimachinery v0.35.4
	k8s.io/client-go v0.35.4
)

replace (
	github.com/hcpmesh/hcpmesh/api => ../api
	github.com/hcpmesh/hcpmesh/dev-infrastructure => ../dev-infrastructure
	github.com/hcpmesh/hcpmesh/internal => ../internal
	github.com/hcpmesh/hcpmesh/tooling/hcpctl => ../tooling/hcpctl
)
