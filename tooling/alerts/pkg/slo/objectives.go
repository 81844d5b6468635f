package slo

// notHealth leaves out requests for the health of the frontend, which do not come from customers.
const notHealth = `route!="/healthz"`

// Objectives returns the objectives of a region.
func Objectives() []*Objective {
	return []*Objective{
		{
			Name: "arm-availability", Alert: "ARMBurn", Target: 0.999, MinErrors: 10, Page: true,
			Promise: "Requests of customers to ARM do not fail because of the service",
			Indicator: Ratio{
				Good: "answered with another status than 5xx",
				All:  Counter{"frontend_http_requests_total", []string{notHealth}, `method="GET",route="clusters",code="200",instance="a"`},
				Bad:  Counter{"frontend_http_requests_total", []string{notHealth, `code=~"5.."`}, `method="PUT",route="clusters",code="503",instance="a"`},
			},
			Summary: "requests of customers fail with 5xx",
			Impact:  "Customers cannot create, change or read clusters with ARM. Clusters keep running.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#requests-fail-or-are-slow",
		},
		{
			Name: "arm-read-latency", Alert: "ARMReadsBurn", Target: 0.99, MinErrors: 20, Page: true,
			Promise: "ARM answers reads within half a second",
			Indicator: Latency{
				Histogram: Counter{"frontend_http_requests_duration_seconds", []string{notHealth, `method="GET"`}, `method="GET",route="clusters",code="200",instance="a"`}, Bound: 0.5,
			},
			Summary: "reads of customers take longer than 500 ms",
			Impact:  "Portals and clients of customers are slow.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#requests-fail-or-are-slow",
		},
		{
			Name: "arm-write-latency", Alert: "ARMWritesBurn", Target: 0.99, MinErrors: 20, Page: true,
			Promise: "ARM accepts or refuses changes within a second",
			Indicator: Latency{
				Histogram: Counter{"frontend_http_requests_duration_seconds", []string{`method=~"PUT|PATCH|POST|DELETE"`}, `method="PUT",route="clusters",code="201",instance="a"`}, Bound: 1,
			},
			Summary: "changes of customers take longer than a second to be accepted",
			Impact:  "Deployments of customers are slow, and clients with short deadlines repeat their requests.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#requests-fail-or-are-slow",
		},
		{
			Name: "operations", Alert: "OperationsBurn", Target: 0.95, MinErrors: 3, Page: true, By: []string{"kind", "request"},
			Promise: "Accepted operations do not fail because of the service",
			Indicator: Ratio{
				Good: "ended without a fault of the service; failures by a fault of the customer or of Azure do not count",
				All:  Counter{"backend_operations_ended_total", []string{`fault=~"none|service"`}, `kind="cluster",request="Create",status="Succeeded",fault="none",instance="a"`},
				Bad:  Counter{"backend_operations_ended_total", []string{`fault="service"`}, `kind="cluster",request="Create",status="Failed",fault="service",instance="a"`},
			},
			Summary: "operations of customers fail because of the service",
			Impact:  "Customers get failed operations that they did not cause.",
			Command: "hcpctl cluster list --region --not-ready", Runbook: "docs/operators/objectives.md#operations-fail",
		},
		{
			Name: "create-duration", Alert: "CreatesBurn", Target: 0.95, MinErrors: 3, Page: true,
			Promise: "A creation that succeeds ends within 20 minutes",
			Indicator: Latency{
				Histogram: Counter{"backend_operation_duration_seconds", []string{`request="Create"`, `status="Succeeded"`}, `request="Create",status="Succeeded",instance="a"`}, Bound: 1200,
			},
			Summary: "creations take longer than 20 minutes",
			Impact:  "Customers wait for clusters, node pools and external authentications.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#operations-are-slow",
		},
		{
			Name: "delete-duration", Alert: "DeletesBurn", Target: 0.99, MinErrors: 3, Page: false,
			Promise: "A deletion that succeeds ends within 25 minutes",
			Indicator: Latency{
				Histogram: Counter{"backend_operation_duration_seconds", []string{`request="Delete"`, `status="Succeeded"`}, `request="Delete",status="Succeeded",instance="a"`}, Bound: 1500,
			},
			Summary: "deletions take longer than 25 minutes",
			Impact:  "Customers wait for names and quota of deleted clusters, and capacity of management clusters stays in use.",
			Command: "hcpctl deletion list --stuck", Runbook: "docs/operators/objectives.md#operations-are-slow",
		},
		{
			Name: "delivery", Alert: "DeliveryBurn", Target: 0.99, Page: true, By: []string{"consumer"},
			Promise: "A change reaches its management cluster within 30 seconds",
			Indicator: State{
				Good:    "a minute in which the agent has confirmed all changes that are older than 30 seconds, for each management cluster",
				Bad:     `max by (consumer) (maestro_outbox_oldest_seconds{lane="new"}) > bool 30`,
				Example: `maestro_outbox_oldest_seconds{consumer="mgmt-1",lane="new",instance="a"}`, BadValue: 31,
			},
			Summary: "changes reach a management cluster too late",
			Impact:  "Creations, changes and deletions of the clusters of this management cluster wait. Control planes keep running.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#changes-do-not-reach-a-management-cluster",
		},
		{
			Name: "calls", Alert: "CallsBurn", Target: 0.999, MinErrors: 10, Page: false, By: []string{"grpc_service"},
			Promise: "Calls between services do not fail because of the server",
			Indicator: Ratio{
				Good: "ended without an error of the server",
				All:  Counter{"grpc_server_handled_total", []string{`grpc_type="unary"`}, `grpc_type="unary",grpc_service="hcpmesh.clusterservice.v1.ClusterService",grpc_method="ApplyCluster",grpc_code="OK",instance="a"`},
				Bad:  Counter{"grpc_server_handled_total", []string{`grpc_type="unary"`, `grpc_code=~"Unknown|Internal|Unavailable|DataLoss|DeadlineExceeded"`}, `grpc_type="unary",grpc_service="hcpmesh.clusterservice.v1.ClusterService",grpc_method="ApplyCluster",grpc_code="Internal",instance="a"`},
			},
			Summary: "calls of a gRPC service fail",
			Impact:  "Frontend, backend and admin repeat the calls, so customers notice delays at first.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#requests-fail-or-are-slow",
		},
		{
			Name: "admin", Alert: "AdminBurn", Target: 0.995, MinErrors: 5, Page: false,
			Promise: "Requests of engineers to admin do not fail because of the service",
			Indicator: Ratio{
				Good: "answered with another status than 5xx",
				All:  Counter{"admin_requests_total", nil, `route="listClusters",status="200",instance="a"`},
				Bad:  Counter{"admin_requests_total", []string{`status=~"5.."`}, `route="listClusters",status="500",instance="a"`},
			},
			Summary: "requests of engineers fail with 5xx",
			Impact:  "Engineers cannot rely on hcpctl. Customers do not notice it.",
			Command: "hcpctl explain", Runbook: "docs/operators/objectives.md#requests-fail-or-are-slow",
		},
	}
}
