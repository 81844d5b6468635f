// Package account describes what a management client, such as an ARM template, creates in a Cosmos DB account: databases,
// containers, role definitions and role assignments. Clients of the data plane cannot create them with tokens of Entra ID.
//
// A Policy decides which principals may execute which data actions, like the native role-based access control of Cosmos DB
// for NoSQL. Role definitions list data actions; role assignments give a definition to a principal at a scope: the account, a
// database or a container. There are no exceptions from a definition: an action that no assignment allows is denied.
package account

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Account is the content of an account. Its JSON form is the file of the flag --account-file.
type Account struct {
	// Name of the account, for error messages.
	Name string `json:"name"`
	// ConsistencyLevel is the default level of reads; empty means Strong.
	ConsistencyLevel ConsistencyLevel `json:"consistencyLevel,omitempty"`
	// Tenant is the only tenant whose principals can use the account.
	Tenant          string           `json:"tenant"`
	Databases       []Database       `json:"databases"`
	RoleDefinitions []RoleDefinition `json:"roleDefinitions"`
	RoleAssignments []RoleAssignment `json:"roleAssignments"`
}

// Database is a database with its containers.
type Database struct {
	Name string `json:"name"`
	// Containers are the properties of containers in the form of the data plane's API.
	Containers []json.RawMessage `json:"containers"`
}

// ConsistencyLevel is a consistency level of Cosmos DB.
type ConsistencyLevel string

// The consistency levels.
const (
	Strong           ConsistencyLevel = "Strong"
	BoundedStaleness ConsistencyLevel = "BoundedStaleness"
	Session          ConsistencyLevel = "Session"
	ConsistentPrefix ConsistencyLevel = "ConsistentPrefix"
	Eventual         ConsistencyLevel = "Eventual"
)

// ConsistencyLevels returns the consistency levels, from the strongest to the weakest.
func ConsistencyLevels() []ConsistencyLevel {
	return []ConsistencyLevel{Strong, BoundedStaleness, Session, ConsistentPrefix, Eventual}
}

// Consistency returns the default level of the account.
func (a *Account) Consistency() (ConsistencyLevel, error) {
	if a.ConsistencyLevel == "" {
		return Strong, nil
	}
	if !slices.Contains(ConsistencyLevels(), a.ConsistencyLevel) {
		return "", fmt.Errorf("consistencyLevel %q: must be one of %v", a.ConsistencyLevel, ConsistencyLevels())
	}
	return a.ConsistencyLevel, nil
}

// Read reads the JSON form of an account. It rejects unknown fields.
func Read(path string) (*Account, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	var a Account
	if err := decoder.Decode(&a); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &a, nil
}

// Policy returns the rights of the account's principals.
func (a *Account) Policy() (*Policy, error) {
	return newPolicy(a.RoleDefinitions, a.RoleAssignments)
}
