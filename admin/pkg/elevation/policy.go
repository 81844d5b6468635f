package elevation

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The limits of the durations of a Policy and of an elevation.
const (
	MinDuration        = time.Minute
	MaxDuration        = 8 * time.Hour
	maxRequestLifetime = 24 * time.Hour
)

// Policy states what elevations of each class need.
type Policy struct {
	// RequestLifetime limits the time from a request to its activation.
	RequestLifetime Duration `yaml:"requestLifetime"`
	// Classes has an entry for each class of actions.
	Classes map[adminv1.AccessClass]ClassPolicy `yaml:"classes"`
}

// ClassPolicy states what elevations of a class need.
type ClassPolicy struct {
	Ticket   TicketRule   `yaml:"ticket"`
	Approval ApprovalRule `yaml:"approval"`
	// ApproverRole is the role of the second person, who approves and reviews.
	ApproverRole adminv1.Role `yaml:"approverRole"`
	// MaxDuration limits an elevation.
	MaxDuration Duration `yaml:"maxDuration"`
}

// TicketRule states whether a request needs a ticket.
type TicketRule string

// The rules of tickets, in ascending order of strictness.
const (
	TicketOptional TicketRule = "optional"
	TicketRequired TicketRule = "required"
	// TicketValidated needs a ticket that the ticket validator accepts, at the request and again at the activation.
	TicketValidated TicketRule = "validated"
)

// ApprovalRule states whether a request needs the approval of a second person.
type ApprovalRule string

// The rules of approvals, in ascending order of strictness. With ApprovalRegion, an elevation that is limited to one cluster needs
// none.
const (
	ApprovalNever  ApprovalRule = "never"
	ApprovalRegion ApprovalRule = "region"
	ApprovalAlways ApprovalRule = "always"
)

func ticketRules() []TicketRule { return []TicketRule{TicketOptional, TicketRequired, TicketValidated} }

func approvalRules() []ApprovalRule {
	return []ApprovalRule{ApprovalNever, ApprovalRegion, ApprovalAlways}
}

// Duration is a time.Duration in the form of Go.
type Duration struct{ time.Duration }

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	parsed, err := time.ParseDuration(node.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is not a duration, for example 30m", node.Line, node.Value)
	}
	d.Duration = parsed
	return nil
}

// LoadPolicy reads a Policy from a YAML file. It rejects unknown fields, missing classes and values that are not supported.
func LoadPolicy(path string) (*Policy, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	policy := &Policy{}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(policy); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := policy.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policy, nil
}

// Validate returns an error for the first field with a value that is not supported. An elevation includes the classes before its
// own, so a class must not need less than those.
func (p *Policy) Validate() error {
	if p.RequestLifetime.Duration < MinDuration || p.RequestLifetime.Duration > maxRequestLifetime {
		return fmt.Errorf("requestLifetime: %s is not %s to %s", p.RequestLifetime, MinDuration, maxRequestLifetime)
	}
	for class := range p.Classes {
		if !slices.Contains(adminv1.AccessClasses(), class) {
			return fmt.Errorf("classes.%s: unknown class; supported classes: %v", class, adminv1.AccessClasses())
		}
	}
	ticket, approval := 0, 0
	for _, name := range adminv1.AccessClasses() {
		class, found := p.Classes[name]
		if !found {
			return fmt.Errorf("classes.%s: missing", name)
		}
		t, a := slices.Index(ticketRules(), class.Ticket), slices.Index(approvalRules(), class.Approval)
		switch {
		case t < 0:
			return fmt.Errorf("classes.%s.ticket: unsupported value %q; supported values: %q", name, class.Ticket, ticketRules())
		case a < 0:
			return fmt.Errorf("classes.%s.approval: unsupported value %q; supported values: %q", name, class.Approval, approvalRules())
		case t < ticket:
			return fmt.Errorf("classes.%s.ticket: %s is less than a class needs that it includes", name, class.Ticket)
		case a < approval:
			return fmt.Errorf("classes.%s.approval: %s is less than a class needs that it includes", name, class.Approval)
		case !access.Known(class.ApproverRole) || class.ApproverRole == adminv1.Reader:
			return fmt.Errorf("classes.%s.approverRole: unsupported value %q; supported values: %q, %q", name, class.ApproverRole, adminv1.Operator, adminv1.BreakGlass)
		case class.MaxDuration.Duration < MinDuration || class.MaxDuration.Duration > MaxDuration:
			return fmt.Errorf("classes.%s.maxDuration: %s is not %s to %s", name, class.MaxDuration, MinDuration, MaxDuration)
		}
		ticket, approval = t, a
	}
	return nil
}

// NeedsApproval reports whether the elevation needs the approval of a second person, unless it is an emergency.
func (p *Policy) NeedsApproval(e *database.ElevationDocument) bool {
	switch p.Classes[adminv1.AccessClass(e.Class)].Approval {
	case ApprovalNever:
		return false
	case ApprovalRegion:
		return e.Target.Kind == database.TargetRegion
	}
	return true
}

// ValidatesTicket reports whether the ticket of the elevation must be validated.
func (p *Policy) ValidatesTicket(e *database.ElevationDocument) bool {
	return p.Classes[adminv1.AccessClass(e.Class)].Ticket == TicketValidated
}

// ValidatesTickets reports whether the tickets of any class must be validated.
func (p *Policy) ValidatesTickets() bool {
	for _, class := range p.Classes {
		if class.Ticket == TicketValidated {
			return true
		}
	}
	return false
}

// approverRole returns the role of the second person; that of the strictest class for a class that the policy does not have.
func (p *Policy) approverRole(e *database.ElevationDocument) adminv1.Role {
	if class, found := p.Classes[adminv1.AccessClass(e.Class)]; found {
		return class.ApproverRole
	}
	return adminv1.BreakGlass
}
