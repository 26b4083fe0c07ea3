// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/cli"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/settings"
)

const kubernetes = root + "/docs/deploy/kubernetes"

// objects are those of the base, in the types of Kubernetes.
type objects struct {
	namespace core.Namespace
	claim     core.PersistentVolumeClaim
	init      batch.Job
	servers   apps.StatefulSet
	services  map[string]*core.Service
	network   networking.NetworkPolicy
	budget    policy.PodDisruptionBudget
}

// readObjects reads the files that the kustomization names. A field that Kubernetes does not know is a mistake.
func readObjects(t *testing.T) *objects {
	t.Helper()
	var k struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(read(t, kubernetes+"/kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	x := &objects{services: map[string]*core.Service{}}
	into := map[string]any{
		"Namespace": &x.namespace, "PersistentVolumeClaim": &x.claim, "Job": &x.init, "StatefulSet": &x.servers, "NetworkPolicy": &x.network,
		"PodDisruptionBudget": &x.budget,
	}
	for _, name := range k.Resources {
		for _, text := range strings.Split(read(t, filepath.Join(kubernetes, name)), "\n---\n") {
			kind := regexp.MustCompile(`(?m)^kind: (\w+)$`).FindStringSubmatch(text)
			if kind == nil {
				t.Fatalf("%s has no kind", name)
			}
			to := into[kind[1]]
			if kind[1] == "Service" {
				s := &core.Service{}
				to = s
				defer func() { x.services[s.Name] = s }()
			}
			if to == nil {
				t.Fatalf("%s has a %s, which nothing checks", name, kind[1])
			}
			delete(into, kind[1])
			if err := yaml.UnmarshalStrict([]byte(text), to); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if len(into) > 0 {
		t.Errorf("the base has no %v", slices.Sorted(maps.Keys(into)))
	}
	return x
}

// TestKubernetesSettings wants each variable of the servers to be a setting with a good value, and what they say to fit the ports,
// the mounts, the probes and the volume that the job makes.
func TestKubernetesSettings(t *testing.T) {
	x := readObjects(t)
	c := x.servers.Spec.Template.Spec.Containers[0]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	if c.Env[0].Name != "HOLDFAST_SERVER_ID" || c.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['apps.kubernetes.io/pod-index']" || x.servers.Spec.Ordinals.Start != 1 {
		t.Error("a server's ID is not the number of its pod, from 1 on")
	}
	env["HOLDFAST_SERVER_ID"] = "1"
	asked := map[string]bool{}
	s, err := settings.Load(settings.Sources{Getenv: func(name string) string { asked[name] = true; return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	for name := range env {
		if !asked[name] {
			t.Errorf("%s is no setting", name)
		}
	}
	if err := s.Complete(); err != nil {
		t.Error(err)
	}
	init := x.init.Spec.Template.Spec.Containers[0]
	if strings.Join(c.Args, " ") != "server" || init.Args[0] != "init" || !slices.Contains(init.Args, "--volume="+s.Volume) {
		t.Errorf("the servers run %v on %s, and the job %v", c.Args, s.Volume, init.Args)
	}
	command, _, err := cli.Commands("").Find(init.Args[:1])
	if err != nil || command.ParseFlags(init.Args[1:]) != nil {
		t.Errorf("the job's arguments are not those of init: %v", init.Args)
	}
	servers, err := command.Flags().GetStringArray("server")
	if err != nil || int32(len(servers)) != *x.servers.Spec.Replicas {
		t.Errorf("%d servers, and a volume for %v", *x.servers.Spec.Replicas, servers)
	}
	for i, member := range servers {
		id := string(rune('1' + i))
		if want := id + "=holdfast-" + id + "." + x.servers.Spec.ServiceName + "." + x.namespace.Name + ".svc"; member != want {
			t.Errorf("server %s has the address %s, want %s", id, member, want)
		}
	}
	for path, container := range map[string]core.Container{s.Volume: c, s.DataDir: c, s.Volume + "/": init} {
		if !slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool { return strings.HasPrefix(path, m.MountPath+"/") }) {
			t.Errorf("%s of %s is on no mount", path, container.Name)
		}
	}
	_, port, err := net.SplitHostPort(s.MetricsListen)
	if err != nil || port != "7901" {
		t.Errorf("metrics are on port %s: %v", port, err)
	}
	if service := s.Names; len(service) != 1 || service[0] != "holdfast-clients."+x.namespace.Name+".svc" {
		t.Errorf("the certificates have the names %v", service)
	}
}

// TestKubernetesPorts wants probes, services and policies to lead to ports and pods that there are.
func TestKubernetesPorts(t *testing.T) {
	x := readObjects(t)
	pod := x.servers.Spec.Template
	c := pod.Spec.Containers[0]
	ports := map[string]int32{}
	for _, p := range c.Ports {
		ports[p.Name] = p.ContainerPort
	}
	if !maps.Equal(ports, map[string]int32{"clients": 7601, "peers": 7801, "metrics": 7901}) {
		t.Errorf("the ports are %v", ports)
	}
	for name, probe := range map[string]*core.Probe{"/livez startup": c.StartupProbe, "/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		path, _, _ := strings.Cut(name, " ")
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("%s is not probed on the port for metrics: %+v", name, probe)
		}
	}
	chosen := map[string]map[string]string{
		"servers": x.servers.Spec.Selector.MatchLabels, "budget": x.budget.Spec.Selector.MatchLabels, "network": x.network.Spec.PodSelector.MatchLabels,
	}
	for name, s := range x.services {
		chosen[name] = s.Spec.Selector
		for _, p := range s.Spec.Ports {
			if ports[p.TargetPort.StrVal] != p.Port {
				t.Errorf("service %s leads port %d to %s", name, p.Port, p.TargetPort.StrVal)
			}
		}
	}
	for name, labels := range chosen {
		for key, value := range labels {
			if pod.Labels[key] != value {
				t.Errorf("%s chooses pods with %s=%s, and the servers have %q", name, key, value, pod.Labels[key])
			}
		}
	}
	own := x.services[x.servers.Spec.ServiceName]
	if own == nil || own.Spec.ClusterIP != core.ClusterIPNone || !own.Spec.PublishNotReadyAddresses {
		t.Error("servers that are not ready do not find each other")
	}
	if x.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%v servers may be away", x.budget.Spec.MaxUnavailable)
	}
}

// TestKubernetesPodsMayDoLittle wants of each pod what the restricted standard of Kubernetes wants, the user of the packages, and no
// group that the volume's files would be given to.
func TestKubernetesPodsMayDoLittle(t *testing.T) {
	x := readObjects(t)
	for name, pod := range map[string]core.PodSpec{"servers": x.servers.Spec.Template.Spec, "init": x.init.Spec.Template.Spec} {
		s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
		if s == nil || c == nil || len(pod.Containers) != 1 {
			t.Fatalf("%s has no security context, or more than one container", name)
		}
		if !*s.RunAsNonRoot || *s.RunAsUser != 7601 || *s.RunAsGroup != 7601 || s.FSGroup != nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s runs as %+v", name, s)
		}
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s may do %+v", name, c)
		}
		if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
			t.Errorf("%s gets a token or variables of the cluster", name)
		}
	}
}

// TestKustomize has kubectl build the base, and Kubernetes' types read what it makes of it.
func TestKustomize(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not here")
	}
	out, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", kubernetes).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built := strings.Split(string(out), "\n---\n")
	if len(built) != 8 {
		t.Errorf("%d objects", len(built))
	}
	for _, text := range built {
		if !strings.Contains(text, "\n    app.kubernetes.io/name: holdfast\n") {
			t.Errorf("an object without its label:\n%s", text)
		}
		if strings.Contains(text, "kind: StatefulSet") {
			var s apps.StatefulSet
			if err := yaml.UnmarshalStrict([]byte(text), &s); err != nil || s.Namespace != "holdfast" || !strings.HasPrefix(s.Spec.Template.Spec.Containers[0].Image, "holdfast:") {
				t.Errorf("%v\n%s", err, text)
			}
		}
	}
}
