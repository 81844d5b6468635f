package database

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// ConsistencyLevel is the default consistency level of the account. All replicas of the services read what any of them has written.
// With a weaker level, and without session tokens, a request after a successful PUT could get 404.
const ConsistencyLevel = azcosmos.ConsistencyLevelStrong

// maxAccountBytes bounds the properties of the account.
const maxAccountBytes = 1 << 20

// weakAccountError is the error of a client whose account has another consistency level.
type weakAccountError struct{ level string }

// Error implements error.
func (e *weakAccountError) Error() string {
	return fmt.Sprintf("the Cosmos DB account has the default consistency level %q, and must have %q: apply the infrastructure of the region", e.level, ConsistencyLevel)
}

// NonRetriable marks the error for azcosmos, which must not repeat the request.
func (e *weakAccountError) NonRetriable() {}

// isAccountRequest reports whether a request reads the properties of the account.
func isAccountRequest(request *http.Request) bool {
	return request.Method == http.MethodGet && strings.Trim(request.URL.Path, "/") == ""
}

// checkConsistency returns a *weakAccountError, and closes the body, if a response has the properties of an account with another
// consistency level.
func checkConsistency(response *http.Response) error {
	if response.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAccountBytes))
	_ = response.Body.Close() // the body was read
	if err != nil {
		return fmt.Errorf("reading the properties of the Cosmos DB account: %w", err)
	}
	var account struct {
		UserConsistencyPolicy struct {
			DefaultConsistencyLevel string `json:"defaultConsistencyLevel"`
		} `json:"userConsistencyPolicy"`
	}
	if err := json.Unmarshal(body, &account); err != nil {
		return fmt.Errorf("the properties of the Cosmos DB account are not JSON: %w", err)
	}
	if level := account.UserConsistencyPolicy.DefaultConsistencyLevel; level != string(ConsistencyLevel) {
		return &weakAccountError{level}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}
