package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	pb "example.com/yunhe/go-plugin/enginev1"
)

// Order is what is kept of a launch: everything but its environment, which goes to the runner through a pipe.
type Order struct {
	NodeID         string         `json:"node_id"`
	Resources      map[string]any `json:"resources"`
	Steps          []string       `json:"steps"`
	TimeoutS       *float64       `json:"timeout_s"`
	GraceS         float64        `json:"grace_s"`
	LogLimitBytes  int64          `json:"log_limit_bytes"`
	DiskLimitBytes *int64         `json:"disk_limit_bytes"`
}

func (p *Pool) launch(order *pb.LaunchOrder) error {
	if err := acceptable(order); err != nil {
		return err
	}
	id := order.AllocationId
	err := p.locked(id, func() error {
		marked, _, err := p.command(id, order.Token)
		if err != nil || marked {
			return err // launched, stopped or released before: it runs once
		}
		if err := p.claim(order); err != nil {
			return err
		}
		return start(p.dir(id), environment(order))
	})
	return errors.Join(err, p.changed())
}

// acceptable refuses by name what this engine cannot honour.
func acceptable(order *pb.LaunchOrder) error {
	switch {
	case order.Image != "":
		return refuse("unsupported", "Leave it out, or use a pool with images.", "image: processes are run, not containers.")
	case len(order.Resources.GetAccelerators()) > 0:
		return refuse("unsupported", "Use a pool that has some.", "resources.accelerators: this engine has none to give.")
	case order.NodeId != nodeName():
		return refuse("invalid-input", "Name the one node of the inventory.", "node_id: there is no node %q here.", order.NodeId)
	case len(order.Steps) == 0:
		return refuse("invalid-input", "Give at least one.", "steps: there is nothing to run.")
	}
	return nil
}

// claim writes the order down before anything is done about it.
func (p *Pool) claim(order *pb.LaunchOrder) error {
	dir := p.dir(order.AllocationId)
	kept := Order{
		NodeID: order.NodeId, TimeoutS: order.TimeoutS, GraceS: grace(order), LogLimitBytes: order.LogLimitBytes, DiskLimitBytes: order.DiskLimitBytes,
		Resources: map[string]any{
			"cpu_millis": order.Resources.GetCpuMillis(), "memory_mib": order.Resources.GetMemoryMib(), "disk_mib": order.Resources.GetDiskMib(),
		},
	}
	for _, name := range []string{"steps", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return err
		}
	}
	for number, step := range order.Steps {
		kept.Steps = append(kept.Steps, step.Name)
		if err := os.WriteFile(script(dir, number), []byte(step.Script), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(writeJSON(filepath.Join(dir, "order.json"), kept), writeJSON(filepath.Join(dir, "mark.json"), Mark{order.Token}))
}

// grace is how long the programs of an order have after the polite signal, where nobody says otherwise.
func grace(order *pb.LaunchOrder) float64 {
	if order.GraceS == nil {
		return 10
	}
	return *order.GraceS
}

func environment(order *pb.LaunchOrder) []string {
	variables := []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"}
	for _, given := range []map[string]string{order.Envs, order.Secrets} {
		for name, value := range given {
			variables = append(variables, name+"="+value)
		}
	}
	return append(variables, fmt.Sprintf("YUNHE_GRACE_S=%g", grace(order)))
}

// start runs a runner that outlives this process, and returns once it has said that it runs.
func start(dir string, variables []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	given, err := json.Marshal(variables)
	if err != nil {
		return err
	}
	runner := exec.Command(self, "run", dir)
	runner.Env = []string{"GOMAXPROCS=1"}
	runner.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	runner.Stdin = bytes.NewReader(given)
	says, err := runner.StdoutPipe()
	if err != nil {
		return err
	}
	if err := runner.Start(); err != nil {
		return err
	}
	said, err := io.ReadAll(says)
	go runner.Wait() //nolint:errcheck // only to let the system forget it: how it ended is in its files
	if err == nil && string(said) != "running" {
		err = refuse("internal", "", "The runner did not start: %s.", said)
	}
	return err
}

func (p *Pool) stop(id string, token int64, graceS float64) error {
	err := p.locked(id, func() error {
		marked, here, err := p.command(id, token)
		if err != nil {
			return err
		}
		if !marked {
			return writeJSON(p.gone(id), Mark{token}) // a launch that comes late starts nothing
		}
		if here && live(p.dir(id)) {
			return writeJSON(filepath.Join(p.dir(id), "stop"), graceS)
		}
		return nil
	})
	return errors.Join(err, p.changed())
}

func (p *Pool) release(id string, token int64) error {
	err := p.locked(id, func() error {
		_, here, err := p.command(id, token)
		if err != nil || !here {
			return err
		}
		if live(p.dir(id)) {
			return refuse("conflict", "Stop it and wait for its end.", "%s still runs.", id)
		}
		return errors.Join(writeJSON(p.gone(id), Mark{token}), os.RemoveAll(p.dir(id)))
	})
	return errors.Join(err, p.changed())
}

// live tells whether something of it may still run: its runner holds a lock for as long as it lives, and says so when
// all has ended.
func live(dir string) bool {
	if state, _ := readState(dir); state != nil && state.EndedAt != nil {
		return false
	}
	file, err := os.OpenFile(filepath.Join(dir, "alive"), os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

func (p *Pool) observation() (*pb.Observation, error) {
	seen := &pb.Observation{Version: p.version()}
	entries, err := os.ReadDir(filepath.Join(p.root, "allocations"))
	for _, entry := range entries {
		if errLook := p.locked(entry.Name(), func() error {
			observed, err := p.look(entry.Name())
			if observed != nil {
				seen.Allocations = append(seen.Allocations, observed)
			}
			return err
		}); errLook != nil {
			return nil, errLook
		}
	}
	return seen, err
}

func (p *Pool) look(id string) (*pb.Observed, error) {
	mark, _, here, err := p.find(id)
	if err != nil || !here {
		return nil, err
	}
	var order Order
	if _, err := readJSON(filepath.Join(p.dir(id), "order.json"), &order); err != nil {
		return nil, err
	}
	alive := live(p.dir(id)) // asked before the state is read: what it writes last is then seen
	state, err := readState(p.dir(id))
	if err != nil {
		return nil, err
	}
	number := func(name string) int64 { value, _ := order.Resources[name].(float64); return int64(value) }
	observed := &pb.Observed{
		AllocationId: id, Token: mark.Token, NodeId: &order.NodeID, LogBytes: size(filepath.Join(p.dir(id), "log")),
		Resources: &pb.ResourceVector{CpuMillis: number("cpu_millis"), MemoryMib: number("memory_mib"), DiskMib: number("disk_mib")},
		Phase:     pb.Phase_PHASE_UNKNOWN, Detail: "claimed; it cannot be shown that it ran", Meters: &pb.Meters{},
	}
	if state != nil {
		state.tell(observed)
		if !alive && state.EndedAt == nil {
			observed.Phase, observed.Detail = pb.Phase_PHASE_UNKNOWN, "its runner ended without saying how"
		}
	}
	return observed, nil
}

func (p *Pool) readLogs(ctx context.Context, request *pb.ReadLogsRequest, leaving <-chan struct{}, send func(*pb.LogChunk) error) error {
	offset := request.Offset
	for {
		var ended bool
		var file *os.File
		err := p.locked(request.AllocationId, func() (err error) {
			_, _, here, err := p.find(request.AllocationId)
			if err == nil && !here {
				err = refuse("not-found", "", "There is no allocation %s here.", request.AllocationId)
			}
			if err == nil {
				ended = !live(p.dir(request.AllocationId))
				file, err = os.OpenFile(filepath.Join(p.dir(request.AllocationId), "log"), os.O_RDONLY|os.O_CREATE, 0o600)
			}
			return err
		})
		if err != nil {
			return err
		}
		offset, err = sendFrom(file, offset, send)
		if err != nil || ended || !request.Follow {
			return err
		}
		if err := pause(ctx, leaving); err != nil {
			return err
		}
	}
}

func sendFrom(file *os.File, offset int64, send func(*pb.LogChunk) error) (int64, error) {
	defer file.Close()
	buffer := make([]byte, 64*1024)
	for {
		count, err := file.ReadAt(buffer, offset)
		if count > 0 {
			if err := send(&pb.LogChunk{Offset: offset, Data: bytes.Clone(buffer[:count])}); err != nil {
				return offset, err
			}
			offset += int64(count)
		}
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, err
		}
	}
}

// pause waits a little before looking again, unless the caller or this instance has left.
func pause(ctx context.Context, leaving <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-leaving:
		return errLeaving
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func readUsage(p *Pool, beyond int64, send func(*pb.UsageMinute) error) error {
	minutes, err := p.minutes()
	for _, minute := range minutes {
		if err == nil && minute.Seq > beyond {
			err = send(proto.Clone(minute).(*pb.UsageMinute))
		}
	}
	return err
}
