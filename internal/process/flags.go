package process

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
)

// Flags are the flags of a program, without those that every process has.
type Flags interface {
	// AddFlags registers the flags.
	AddFlags(flags *flag.FlagSet)
	// Validate returns an error that names the first missing or invalid flag.
	Validate() error
}

// Main parses the arguments of the process as Parse does, calls Run with the program and does not return.
func Main(name string, program Flags, run func(ctx context.Context, p *Process) error) {
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	var common Options
	common.AddFlags(flags)
	program.AddFlags(flags)
	Parse(flags, os.Args[1:], program.Validate)
	Run(name, common, run)
}

// Parse parses args, which do not contain the name of the program, and calls validate. It terminates the program on an invalid flag, a
// remaining argument or -h, like flag.ExitOnError.
func Parse(flags *flag.FlagSet, args []string, validate func() error) {
	flags.Init(flags.Name(), flag.ExitOnError)
	_ = flags.Parse(args)
	var err error
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	} else {
		err = validate()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", flags.Name(), err)
		os.Exit(2)
	}
}

// Required returns an error that names a flag if its value is empty. Like those of the following functions, the error is one operand of cmp.Or, which
// returns the first.
func Required(name, value string) error {
	if value == "" {
		return fmt.Errorf("--%s is required", name)
	}
	return nil
}

// AtLeast returns an error that names a flag if its value is less than minimum.
func AtLeast[T cmp.Ordered](name string, value, minimum T) error {
	if value < minimum {
		return fmt.Errorf("--%s: %v is less than %v", name, value, minimum)
	}
	return nil
}

// Between returns an error that names a flag if its value is less than minimum or greater than maximum.
func Between[T cmp.Ordered](name string, value, minimum, maximum T) error {
	if value < minimum || value > maximum {
		return fmt.Errorf("--%s: %v is not %v to %v", name, value, minimum, maximum)
	}
	return nil
}

// ErrorIf returns an error with the format if a condition is true.
func ErrorIf(condition bool, format string, values ...any) error {
	if condition {
		return fmt.Errorf(format, values...)
	}
	return nil
}

// Named returns an error about the value of a flag with the name of the flag; nil if err is nil.
func Named(name string, err error) error {
	if err != nil {
		return fmt.Errorf("--%s: %w", name, err)
	}
	return nil
}
