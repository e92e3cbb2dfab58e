// Starts dnsweir where CoreDNS's end-to-end tests start CoreDNS: `cargo xtask coredns-suite` puts it in the place of their server.go.

package test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coredns/coredns/plugin/metrics"
)

var program = os.Getenv("DNSWEIR")

var started atomic.Int64

// Instance is a running dnsweir.
type Instance struct {
	process  *exec.Cmd
	said     *said
	ended    chan struct{}
	corefile string // The path. What is imported of it is beside it.
	port     int    // Stands for port 0 of blocks,
	metrics  int    // and this one for that of metrics.
	servers  []Server
}

// Server is where an instance listens.
type Server struct{ at *net.TCPAddr }

func (s Server) Addr() net.Addr      { return s.at }
func (s Server) LocalAddr() net.Addr { return s.at }

// Input has a Corefile.
type Input struct{ corefile []byte }

func NewInput(corefile string) *Input { return &Input{[]byte(corefile)} }
func (i *Input) Body() []byte         { return i.corefile }
func (i *Input) Path() string         { return "Corefile" }
func (i *Input) ServerType() string   { return "dns" }

// said has what a process writes.
type said struct {
	sync.Mutex
	bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	return s.Buffer.Write(b)
}

func (s *said) String() string {
	s.Lock()
	defer s.Unlock()
	return s.Buffer.String()
}

// CoreDNSServer starts dnsweir with what it imports of a Corefile.
func CoreDNSServer(corefile string) (*Instance, error) {
	base, err := filepath.Abs(fmt.Sprintf(".suite-%d-%d", os.Getpid(), started.Add(1)))
	if err != nil {
		return nil, err
	}
	i := &Instance{corefile: base, port: free(), metrics: free(), said: &said{}, ended: make(chan struct{})}
	metrics.ListenAddr = fmt.Sprintf("127.0.0.1:%d", i.metrics)
	if err := i.translate(corefile); err != nil {
		i.remove()
		return nil, err
	}
	i.process = exec.Command(program, "run", "--config", base+".kdl", "--compiled-cache", os.Getenv("COMPILED_CACHE"))
	i.process.Stdout, i.process.Stderr = i.said, i.said
	i.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := i.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		i.process.Wait()
		close(i.ended)
	}()
	until := time.Now().Add(30 * time.Second)
	for !i.listens() {
		select {
		case <-i.ended:
			i.remove()
			return nil, errors.New("ended: " + i.said.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(until) {
			i.Stop()
			return nil, errors.New("does not listen: " + i.said.String())
		}
	}
	return i, nil
}

var (
	anyPort = regexp.MustCompile(`:0(\s|,|$)`)
	keyPort = regexp.MustCompile(`:(\d+)$`)
)

// translate has a Corefile imported, and notes its ports.
func (i *Instance) translate(corefile string) error {
	text := strings.ReplaceAll(corefile, "localhost:0", fmt.Sprintf("localhost:%d", i.metrics))
	text = anyPort.ReplaceAllString(text, fmt.Sprintf(":%d$1", i.port))
	if err := os.WriteFile(i.corefile, []byte(text), 0o644); err != nil {
		return err
	}
	var out, problem bytes.Buffer
	imported := exec.Command(program, "import", i.corefile)
	imported.Stdout, imported.Stderr = &out, &problem
	if err := imported.Run(); err != nil {
		// The line that `cargo xtask coredns-suite` looks for.
		return fmt.Errorf("dnsweir-refused %s", problem.String())
	}
	// As long as it takes: a filter's milliseconds are for filters, not for a machine that runs tests.
	kdl := strings.ReplaceAll(out.String(), "    module \"builtin:", "    limits time=\"1s\"\n    module \"builtin:")
	i.servers = nil
	for _, port := range ports(text) {
		i.servers = append(i.servers, Server{&net.TCPAddr{Port: port}})
	}
	return os.WriteFile(i.corefile+".kdl", []byte(kdl), 0o644)
}

// ports has those of the keys of all blocks, each once.
func ports(corefile string) (found []int) {
	depth, known := 0, map[int]bool{}
	for line := range strings.SplitSeq(corefile, "\n") {
		words := strings.Fields(strings.SplitN(line, "#", 2)[0])
		for _, word := range words {
			if m := keyPort.FindStringSubmatch(strings.TrimRight(word, ",")); depth == 0 && m != nil {
				var port int
				fmt.Sscan(m[1], &port)
				if !known[port] {
					known[port], found = true, append(found, port)
				}
			}
			switch word {
			case "{":
				depth++
			case "}":
				depth--
			}
		}
	}
	return
}

// listens says whether every port is taken, as the kernel has it.
func (i *Instance) listens() bool {
	var taken strings.Builder
	for _, table := range []string{"udp", "udp6", "tcp", "tcp6"} {
		rows, _ := os.ReadFile("/proc/net/" + table)
		for row := range strings.SplitSeq(string(rows), "\n") {
			if words := strings.Fields(row); len(words) > 3 && (words[3] == "07" || words[3] == "0A") {
				taken.WriteString(words[1] + " ")
			}
		}
	}
	for _, server := range i.servers {
		if !strings.Contains(taken.String(), fmt.Sprintf(":%04X ", server.at.Port)) {
			return false
		}
	}
	return true
}

// free finds a port that neither UDP nor TCP has.
func free() int {
	for {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		l.Close()
		if err == nil {
			u.Close()
			return port
		}
	}
}

func (i *Instance) remove() {
	os.Remove(i.corefile)
	os.Remove(i.corefile + ".kdl")
}

// Stop ends it.
func (i *Instance) Stop() error {
	if i == nil || i.process == nil {
		return nil
	}
	i.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-i.ended:
	case <-time.After(5 * time.Second):
		i.process.Process.Kill()
		<-i.ended
	}
	i.remove()
	return nil
}

// Wait returns when it has ended.
func (i *Instance) Wait() { <-i.ended }

// ShutdownCallbacks has none.
func (i *Instance) ShutdownCallbacks() []error { return nil }

// Servers has where it listens.
func (i *Instance) Servers() []Server { return i.servers }

// Restart puts another Corefile in the place of the one that it runs with.
func (i *Instance) Restart(in *Input) (*Instance, error) {
	before := len(i.said.String())
	if err := i.translate(string(in.corefile)); err != nil {
		return i, err
	}
	i.process.Process.Signal(syscall.SIGHUP)
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		select {
		case <-i.ended:
			return i, nil
		default:
		}
		if strings.Contains(i.said.String()[before:], "reloaded") {
			break
		}
	}
	return i, nil
}

// CoreDNSServerStop ends an instance.
func CoreDNSServerStop(i *Instance) { i.Stop() }

// CoreDNSServerPorts has the addresses of an instance's k'th server.
func CoreDNSServerPorts(i *Instance, k int) (udp, tcp string) {
	if k >= len(i.servers) {
		return "", ""
	}
	at := fmt.Sprintf("127.0.0.1:%d", i.servers[k].at.Port)
	return at, at
}

// CoreDNSServerAndPorts does both.
func CoreDNSServerAndPorts(corefile string) (i *Instance, udp, tcp string, err error) {
	if i, err = CoreDNSServer(corefile); err != nil {
		return nil, "", "", err
	}
	udp, tcp = CoreDNSServerPorts(i, 0)
	return i, udp, tcp, nil
}
