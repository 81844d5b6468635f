package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Requests from the process that started an outermost machine to its init process. Each has a connection of its own: one end of a
// pair of Unix sockets, which is passed over the connection that the init process inherits. A machine therefore has no socket in the
// file system, and the init process notices the end of its starter.
const (
	// dialRequest connects to Address, and listenRequest listens on it. The reply contains the socket, which belongs to the network of
	// the machine, whichever process uses it.
	dialRequest   = "dial"
	listenRequest = "listen"
	// runRequest starts Program.
	runRequest = "run"
	// startRequest starts Machine inside. The first reply reports that its programs were started, a second one that it terminated.
	startRequest = "start"
	// killRequest kills the machine called Name. The reply is sent when nothing of it is left.
	killRequest = "kill"
)

// request is a request to the init process.
type request struct {
	Type    string   `json:"type"`
	Address string   `json:"address,omitempty"`
	Program *Program `json:"program,omitempty"`
	Machine *Spec    `json:"machine,omitempty"`
	Name    string   `json:"name,omitempty"`
}

// reply is the answer to a request. An empty Error reports success.
type reply struct {
	Error string `json:"error,omitempty"`
}

// The first byte of every reply, which carries the file descriptor if there is one.
const (
	withoutFile = 0
	withFile    = 1
)

// sendReply sends a reply, with a file if it is not nil.
func sendReply(connection *net.UnixConn, failed error, file *os.File) error {
	marker, rights := []byte{withoutFile}, []byte(nil)
	if file != nil {
		marker[0], rights = withFile, syscall.UnixRights(int(file.Fd()))
	}
	if _, _, err := connection.WriteMsgUnix(marker, rights, nil); err != nil {
		return err
	}
	var r reply
	if failed != nil {
		r.Error = failed.Error()
	}
	return json.NewEncoder(connection).Encode(r)
}

// receiveReply receives a reply and the file that it carries, or nil.
func receiveReply(connection *net.UnixConn) (*os.File, error) {
	file, err := receiveFile(connection)
	if err != nil {
		return nil, err
	}
	var r reply
	if err := json.NewDecoder(connection).Decode(&r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return file, nil
}

// receiveFile receives one byte and the file that it carries, or nil.
func receiveFile(connection *net.UnixConn) (*os.File, error) {
	marker, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	n, length, _, _, err := connection.ReadMsgUnix(marker, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, net.ErrClosed
	}
	if marker[0] != withFile {
		return nil, nil
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:length])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receiving a file: %d control messages: %w", len(messages), err)
	}
	files, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("receiving a file: %d files: %w", len(files), err)
	}
	syscall.CloseOnExec(files[0])
	return os.NewFile(uintptr(files[0]), "received"), nil
}

// unixConnection returns a connection for a file that is one end of a pair of Unix sockets, and closes the file.
func unixConnection(file *os.File) (*net.UnixConn, error) {
	connection, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	unix, ok := connection.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is not a Unix connection", connection), connection.Close())
	}
	return unix, nil
}

// socketPair returns the ends of a pair of connected Unix sockets.
func socketPair() (ours *net.UnixConn, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "request")
	if ours, err = unixConnection(os.NewFile(uintptr(pair[0]), "request")); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}
