package store

import "fmt"

// Kind classifies what the store refused. The HTTP layer maps it to a status; nobody matches on text.
type Kind int

// The kinds of refusal.
const (
	NotFound Kind = iota + 1
	Conflict
	PreconditionFailed
	BadRequest
	TooLarge
	Gone
)

// SubStatus values the service reports beside the HTTP status.
const (
	SubStatusPartitionKeyMismatch = 1001
	SubStatusConditionNotMet      = 1110
	SubStatusOwnerNotFound        = 1003
	SubStatusPartitionRangeGone   = 1002
)

// Error is a refusal: the request was understood and nothing was changed.
type Error struct {
	Kind      Kind
	SubStatus int
	Message   string
}

func (e *Error) Error() string { return e.Message }

// Refuse builds an Error.
func Refuse(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// The service's own wording of the refusals clients know.
const (
	msgNotFound     = "Entity with the specified id does not exist in the system. More info: https://aka.ms/cosmosdb-tsg-not-found"
	msgConflict     = "Entity with the specified id already exists in the system."
	msgUnique       = "Unique index constraint violation."
	msgPrecondition = "Operation cannot be performed because one of the specified precondition is not met."
	msgTooLarge     = "Request size is too large"
	msgKeyMismatch  = "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"
	msgMissingID    = "The input content is invalid because the required properties - 'id; ' - are missing"
)
