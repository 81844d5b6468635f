package postgres

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATE codes that callers handle.
const (
	RestrictViolation        = "23001"
	ForeignKeyViolation      = "23503"
	UniqueViolation          = "23505"
	UntranslatableCharacter  = "22P05"
	readOnlyTransaction      = "25006"
	idleInTransactionTimeout = "25P03"
	connectionExceptions     = "08"
	insufficientResources    = "53"
	operatorClass            = "57"
)

// Code returns the SQLSTATE of an error that the server reported, or "" for any other error.
func Code(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// Constraint returns the name of the unique constraint or index that err reports as violated, or "".
func Constraint(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == UniqueViolation {
		return pgErr.ConstraintName
	}
	return ""
}

// IsUnavailable reports whether err is due to the state of the server or of the connection, so that the same request may
// succeed later: the server was not reached, ended the connection, or accepts no writes, or there is no token for a session.
func IsUnavailable(err error) bool {
	if code := Code(err); code != "" {
		return unavailableCode(code)
	}
	if _, ok := errors.AsType[*TokenError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	// database/sql, which runs the migrations, replaces the error of a broken connection by ErrBadConn.
	return pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, driver.ErrBadConn)
}

func unavailableCode(sqlstate string) bool {
	switch sqlstate {
	case readOnlyTransaction, // the server became a standby, or has no disk space left
		idleInTransactionTimeout: // this process had been stopped
		return true
	}
	if len(sqlstate) != 5 {
		return false
	}
	class := sqlstate[:2]
	return class == connectionExceptions || class == insufficientResources || class == operatorClass
}
