package store

import "fmt"

// Kind classifies the errors of rejected requests. The HTTP layer maps it to a status. No code matches on messages.
type Kind int

// The kinds.
const (
	NotFound Kind = iota + 1
	Conflict
	PreconditionFailed
	BadRequest
	TooLarge
	Gone
)

// The sub-status codes of the service.
const (
	SubStatusPartitionKeyMismatch = 1001
	SubStatusOwnerNotFound        = 1003
	SubStatusPartitionRangeGone   = 1002
)

// Error rejects a valid request that changed nothing.
type Error struct {
	Kind      Kind
	SubStatus int
	Message   string
}

// Error returns the message for the client.
func (e *Error) Error() string { return e.Message }

// NewError returns an Error with a formatted message.
func NewError(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// The messages of the service.
const (
	msgNotFound     = "Entity with the specified id does not exist in the system. More info: https://aka.ms/cosmosdb-tsg-not-found"
	msgConflict     = "Entity with the specified id already exists in the system."
	msgPrecondition = "Operation cannot be performed because one of the specified precondition is not met."
	msgTooLarge     = "Request size is too large"
	msgKeyMismatch  = "PartitionKey extracted from document doesn't match the one specified in the header. Learn more: https://aka.ms/CosmosDB/sql/errors/wrong-pk-value"
	msgMissingID    = "The input content is invalid because the required properties - 'id; ' - are missing"
)
