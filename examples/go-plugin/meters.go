package main

import (
	"bufio"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	pb "example.com/yunhe/go-plugin/enginev1"
)

const (
	ticksPerSecond = 100
	bands          = 32
	usageKeptBytes = 4 << 20
)

// Account counts what one allocation uses, from one sample a second of its process session.
type Account struct {
	pool          *Pool
	id            string
	session       int
	startedAt     time.Time
	sampledAt     time.Time
	cpuUs         int64
	memoryMib     float64
	meters        pb.Meters
	memoryMibMs   float64
	coveredMs     float64
	minute        *pb.UsageMinute
	minuteSamples []float64
}

// sample counts the time since the last one; memory at the lower of its two ends.
func (a *Account) sample(now time.Time) {
	cpuUs, memoryMib := sessionUse(a.session)
	cpuUs = max(cpuUs, a.cpuUs)
	elapsed := now.Sub(a.sampledAt).Seconds()
	if elapsed > 0 {
		a.intoMinute(now, float64(cpuUs-a.cpuUs)/elapsed/1000, memoryMib)
		a.memoryMibMs += min(memoryMib, a.memoryMib) * elapsed * 1000
		a.coveredMs += elapsed * 1000
	}
	a.cpuUs, a.memoryMib, a.sampledAt = cpuUs, memoryMib, now
	a.meters.MemoryPeakMib = max(a.meters.MemoryPeakMib, int64(math.Ceil(memoryMib)))
}

// total adds what the kernel says the ended processes used, and returns the meters.
func (a *Account) total(now time.Time, endedUs int64) *pb.Meters {
	a.cpuUs = max(a.cpuUs, endedUs)
	wallMs := now.Sub(a.startedAt).Milliseconds()
	a.meters.WallMs, a.meters.CpuUs, a.meters.MemoryMibMs = wallMs, a.cpuUs, int64(a.memoryMibMs)
	a.meters.GapMs = max(a.meters.GapMs, wallMs-int64(a.coveredMs))
	return &a.meters
}

func (a *Account) intoMinute(now time.Time, cpuMillis, memoryMib float64) {
	number := now.Unix() / 60
	if a.minute != nil && a.minute.Minute != number {
		a.closeMinute()
	}
	if a.minute == nil {
		a.minute = &pb.UsageMinute{AllocationId: a.id, Minute: number, CpuSketch: make([]int64, bands)}
	}
	minute := a.minute
	minute.Samples++
	weight := 1 / float64(minute.Samples)
	minute.CpuMeanMillis += (cpuMillis - minute.CpuMeanMillis) * weight
	minute.MemoryMeanMib += (memoryMib - minute.MemoryMeanMib) * weight
	minute.CpuMaxMillis = max(minute.CpuMaxMillis, cpuMillis, minute.CpuMeanMillis)
	minute.MemoryMaxMib = max(minute.MemoryMaxMib, memoryMib, minute.MemoryMeanMib)
	minute.CpuSketch[band(cpuMillis)]++
}

func band(cpuMillis float64) int {
	if cpuMillis < 1 {
		return 0
	}
	return min(bands-1, int(2*math.Log2(cpuMillis)))
}

// closeMinute hands a minute out: its number follows the last one's.
func (a *Account) closeMinute() error {
	if a.minute == nil {
		return nil
	}
	minute := a.minute
	a.minute = nil
	return a.pool.holding("usage", func() error {
		minutes, err := a.pool.minutes()
		if err != nil {
			return err
		}
		if len(minutes) > 0 {
			minute.Seq = minutes[len(minutes)-1].Seq + 1
		}
		line, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(minute)
		if err != nil {
			return err
		}
		path := filepath.Join(a.pool.root, "usage.jsonl")
		if size(path) > usageKeptBytes { // half of it was handed out long ago
			if err := keepHalf(path); err != nil {
				return err
			}
		}
		file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = file.Write(append(line, '\n'))
		return err
	})
}

func keepHalf(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(string(text), "\n")
	return writeWhole(path, []byte(strings.Join(lines[len(lines)/2:], "")))
}

func (p *Pool) minutes() ([]*pb.UsageMinute, error) {
	file, err := os.Open(filepath.Join(p.root, "usage.jsonl"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var minutes []*pb.UsageMinute
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		minute := &pb.UsageMinute{}
		if protojson.Unmarshal(lines.Bytes(), minute) == nil { // a line cut short by a full disk is no minute
			minutes = append(minutes, minute)
		}
	}
	return minutes, lines.Err()
}

// sessionUse adds up the processor time and resident memory of every process of a session.
func sessionUse(session int) (cpuUs int64, memoryMib float64) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if name := entry.Name(); name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 22 || fields[3] != strconv.Itoa(session) || entry.Name() == strconv.Itoa(session) {
			continue
		}
		for _, field := range fields[11:15] { // its own time and that of its ended children
			ticks, _ := strconv.ParseInt(field, 10, 64)
			cpuUs += ticks * 1_000_000 / ticksPerSecond
		}
		pages, _ := strconv.ParseFloat(fields[21], 64)
		memoryMib += pages * float64(os.Getpagesize()) / (1 << 20)
	}
	return cpuUs, memoryMib
}
