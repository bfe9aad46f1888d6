package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "example.com/yunhe/go-plugin/enginev1"
)

// State is what a runner says of its allocation.
type State struct {
	Step      string          `json:"step"`
	StartedAt float64         `json:"started_at"`
	EndedAt   *float64        `json:"ended_at"`
	ExitCode  *int64          `json:"exit_code"`
	Ending    pb.Ending       `json:"ending"`
	Detail    string          `json:"detail"`
	Meters    json.RawMessage `json:"meters"`
}

func readState(dir string) (*State, error) {
	state := &State{}
	found, err := readJSON(filepath.Join(dir, "state.json"), state)
	if !found {
		return nil, err
	}
	return state, nil
}

func (s *State) tell(observed *pb.Observed) {
	observed.Phase, observed.Detail = pb.Phase_PHASE_RUNNING, s.Detail
	observed.Step, observed.StartedAt, observed.EndedAt, observed.ExitCode = s.Step, &s.StartedAt, s.EndedAt, s.ExitCode
	if s.EndedAt != nil {
		observed.Phase, observed.Ending = pb.Phase_PHASE_EXITED, &s.Ending
	}
	_ = protojson.Unmarshal(s.Meters, observed.Meters)
}

// Runner runs the steps of one allocation, whatever becomes of the plugin that started it.
type Runner struct {
	dir       string
	pool      *Pool
	order     Order
	variables []string
	state     State
	account   Account
	stopAt    *time.Time
	ending    pb.Ending
}

// runAllocation is what "go-plugin run DIR" does.
func runAllocation(dir string) error {
	root := filepath.Dir(filepath.Dir(dir))
	now := time.Now()
	runner := &Runner{dir: dir, pool: &Pool{root}, ending: pb.Ending_ENDING_DONE}
	runner.account = Account{pool: runner.pool, id: filepath.Base(dir), session: os.Getpid(), startedAt: now, sampledAt: now}
	alive, err := os.OpenFile(filepath.Join(dir, "alive"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err // somebody else has claimed it
	}
	defer alive.Close() // not before the end: a file nobody refers to is closed, and its lock lost
	if err := syscall.Flock(int(alive.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if err := json.NewDecoder(os.Stdin).Decode(&runner.variables); err != nil {
		return err
	}
	if _, err := readJSON(filepath.Join(dir, "order.json"), &runner.order); err != nil {
		return err
	}
	runner.state = State{Step: runner.order.Steps[0], StartedAt: seconds(now)}
	if err := runner.save(); err != nil {
		return err
	}
	fmt.Print("running")
	os.Stdout.Close()
	code, err := runner.steps()
	if err != nil {
		runner.state.Detail = err.Error()
	}
	return runner.finish(code)
}

// steps runs one after another; the first that fails is the last.
func (r *Runner) steps() (code int64, err error) {
	log, err := newLog(filepath.Join(r.dir, "log"), r.order.LogLimitBytes)
	if err != nil {
		return 1, err
	}
	defer log.file.Close()
	for number, name := range r.order.Steps {
		if r.state.Step != name {
			r.state.Step = name
			if err := errors.Join(r.save(), r.pool.changed()); err != nil {
				return 1, err
			}
		}
		if code, err = r.step(number, log); code != 0 || err != nil || r.ending != pb.Ending_ENDING_DONE {
			return code, err
		}
	}
	return 0, nil
}

func (r *Runner) step(number int, log *Log) (int64, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	command := exec.Command("/bin/sh", script(r.dir, number))
	command.Dir, command.Env = filepath.Join(r.dir, "work"), append(r.variables, "HOME="+filepath.Join(r.dir, "work"))
	command.Stdout, command.Stderr = write, write
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = command.Start()
	write.Close()
	if err != nil {
		return 1, err
	}
	pumped, ended := make(chan struct{}), make(chan error, 1)
	go func() { io.Copy(log, read); close(pumped) }() //nolint:errcheck // a log never fails: it drops
	go func() { ended <- command.Wait() }()
	r.watch(command.Process.Pid, ended)
	r.letRestEnd(command.Process.Pid)
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // what a step leaves behind ends with it
	<-pumped
	if status := command.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int64(status.Signal()), nil
	}
	return int64(command.ProcessState.ExitCode()), nil
}

// watch waits for the end of a step, and brings it about where that is due.
func (r *Runner) watch(group int, ended <-chan error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	nextSample := r.account.sampledAt.Add(time.Second)
	for {
		select {
		case <-ended:
			return
		case now := <-tick.C:
			if now.After(nextSample) {
				nextSample = nextSample.Add(time.Second)
				r.sample(now, group)
			}
			r.endIfDue(now, group)
		}
	}
}

// letRestEnd gives what a step has started the rest of the grace: the shell around it dies of the signal first.
func (r *Runner) letRestEnd(group int) {
	for r.stopAt != nil && time.Now().Before(*r.stopAt) && syscall.Kill(-group, 0) == nil {
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *Runner) sample(now time.Time, group int) {
	r.account.sample(now)
	_ = r.save()
	if limit := r.order.DiskLimitBytes; limit != nil && used(r.dir) > *limit {
		r.ending = pb.Ending_ENDING_DISK_FULL
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
}

func (r *Runner) endIfDue(now time.Time, group int) {
	var graceS float64
	if r.stopAt == nil {
		if asked, _ := readJSON(filepath.Join(r.dir, "stop"), &graceS); asked {
			r.ask(now, graceS, pb.Ending_ENDING_STOPPED, group)
		}
	}
	if r.stopAt != nil && !now.Before(*r.stopAt) {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	if limit := r.order.TimeoutS; limit != nil && r.ending == pb.Ending_ENDING_DONE && now.Sub(r.account.startedAt).Seconds() >= *limit {
		r.ask(now, r.order.GraceS, pb.Ending_ENDING_TIMED_OUT, group)
	}
}

// ask has every program of a step end, and notes when that is no longer a matter of asking.
func (r *Runner) ask(now time.Time, graceS float64, ending pb.Ending, group int) {
	at := now.Add(time.Duration(graceS * float64(time.Second)))
	r.stopAt, r.ending = &at, ending
	_ = syscall.Kill(-group, syscall.SIGTERM)
}

func (r *Runner) finish(code int64) error {
	now := time.Now()
	ended := seconds(now)
	r.account.sample(now)
	r.state.EndedAt, r.state.ExitCode, r.state.Ending = &ended, &code, r.ending
	return errors.Join(r.account.closeMinute(), r.save(), r.pool.changed())
}

func (r *Runner) save() error {
	var children syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children)
	endedUs := (children.Utime.Nano() + children.Stime.Nano()) / 1000
	meters, err := protojson.Marshal(r.account.total(time.Now(), endedUs))
	if err != nil {
		return err
	}
	r.state.Meters = meters
	return writeJSON(filepath.Join(r.dir, "state.json"), r.state)
}

// Log keeps output up to its limit and says where it was cut.
type Log struct {
	file *os.File
	left int64
}

func newLog(path string, limit int64) (*Log, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Log{file, limit}, err
}

func (l *Log) Write(data []byte) (int, error) {
	kept := data[:min(int64(len(data)), max(l.left, 0))]
	_, _ = l.file.Write(kept)
	if l.left >= 0 && int64(len(data)) > l.left {
		_, _ = l.file.WriteString("\n[the log has reached its limit; what follows is not kept]\n")
		l.left = -1
	} else {
		l.left -= int64(len(kept))
	}
	return len(data), nil
}

func script(dir string, number int) string {
	return filepath.Join(dir, "steps", strconv.Itoa(number)+".sh")
}

func used(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil {
			if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
		}
		return nil
	})
	return bytes
}

func seconds(at time.Time) float64 { return float64(at.UnixMicro()) / 1e6 }
