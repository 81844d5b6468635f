// Package armheader names the HTTP headers of Azure Resource Manager, in canonical form. ARM sends them to a resource
// provider, and a resource provider returns some of them.
package armheader

const (
	// SystemData is JSON that names who created and last changed a resource, and when.
	SystemData = "X-Ms-Arm-Resource-System-Data"
	// IdentityURL is the address of the managed identity service for the resource.
	IdentityURL = "X-Ms-Identity-Url"
	// HomeTenantID is the tenant of the subscription.
	HomeTenantID = "X-Ms-Home-Tenant-Id"
	// ClientObjectID, ClientTenantID, ClientAppID and ClientPrincipalName describe the caller.
	ClientObjectID      = "X-Ms-Client-Object-Id"
	ClientTenantID      = "X-Ms-Client-Tenant-Id"
	ClientAppID         = "X-Ms-Client-App-Id"
	ClientPrincipalName = "X-Ms-Client-Principal-Name"
	// ClientRequestID is chosen by the caller, who receives it back if ReturnClientRequestID is "true".
	ClientRequestID       = "X-Ms-Client-Request-Id"
	ReturnClientRequestID = "X-Ms-Return-Client-Request-Id"
	// CorrelationID is the same for everything that one request of a client caused.
	CorrelationID = "X-Ms-Correlation-Request-Id"
	// RequestID identifies one request. The resource provider sets it.
	RequestID = "X-Ms-Request-Id"
	// ErrorCode is the code of an error response.
	ErrorCode = "X-Ms-Error-Code"
	// AsyncOperation is the address of the status document of an asynchronous operation.
	AsyncOperation = "Azure-AsyncOperation"
	// RetryAfterMS is the time to wait before the next request, in milliseconds.
	RetryAfterMS = "X-Ms-Retry-After-Ms"
)
