package customererror

import (
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Fault names who must change something so that an operation succeeds.
type Fault string

// The faults. A failure counts as the service's unless its error proves that it is not.
const (
	// FaultNone is that of an operation that succeeded.
	FaultNone Fault = "none"
	// FaultCustomer is an invalid configuration, or an operation that a later request of the customer ended.
	FaultCustomer Fault = "customer"
	// FaultAzure is a deadline at which the resource waited for Azure.
	FaultAzure Fault = "azure"
	// FaultService is every other failure.
	FaultService Fault = "service"
)

// Faults returns all faults.
func Faults() []Fault { return []Fault{FaultNone, FaultCustomer, FaultAzure, FaultService} }

// FaultOf returns whose fault the error of an ended operation is. The fault of several errors is the service's if that of one
// is, else Azure's if that of one is.
func FaultOf(failure *database.OperationError) Fault {
	if failure == nil {
		return FaultNone
	}
	switch failure.Code {
	case CodeCanceled, CodeAwaitingSecret, CodeIdentityNotFound, CodeFederatedCredentialLimit, CodeEncryptionKeyInvalid, CodeRequirementsNotMet,
		CodeInvalidConfiguration, apierror.Invalid.ARMCode(), apierror.Conflict.ARMCode():
		return FaultCustomer
	case CodeDeadlineExceeded:
		if failure.Layer == clusterstatus.LayerAzure {
			return FaultAzure
		}
	case codeMultipleErrors:
		worst := FaultCustomer
		for i := range failure.Details {
			switch fault := FaultOf(&failure.Details[i]); {
			case fault == FaultService, fault == FaultAzure && worst == FaultCustomer:
				worst = fault
			}
		}
		return worst
	}
	return FaultService
}
