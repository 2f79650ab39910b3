// One node: what it has, what is used, by whom, and its devices.
import type { NodeDevices } from "../answers";
import { numberOf } from "../amounts";
import { BASE, useFollowed } from "../live";
import { Count, Gaps, Link, Missing, QuotaName, Same } from "../parts";
import { to, toList, toUnit } from "../route";
import { tellAmounts } from "./quotas";

/** Names that device plugins give: broken GPUs are in their numbers, and in those of Koordinator are not. */
const WHOLE_GPUS = /^(?!koordinator\.sh\/).*\/gpu$/;

export function NodeView(props: { parts: string[] }) {
  const name = props.parts[0] ?? "";
  const path = `nodes/${encodeURIComponent(name)}`;
  const { head, value, missing } = useFollowed({ topic: "node", path, inPath: { name } });
  const report = useDevices(name);
  const broken = report?.devices.filter((device) => device.type === "gpu" && !device.health).length ?? 0;
  if (!value) return <Missing message={missing} />;
  const resources = Object.keys(value.allocatable).filter((key) => numberOf(value.allocatable[key]) > 0);
  const whole = resources.find((key) => WHOLE_GPUS.test(key));
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <p class="lead">
        <span class={`badge ${value.state === "Ready" ? "class-order" : "class-misconfigured"}`}>{value.state}</span>
        {value.taints.map((taint) => <code key={taint}>{taint}</code>)}
        <Link href={to("map")}>Map</Link> · <Link href={toList("reservations", { node: name })}>Reservations here</Link>
      </p>
      <section aria-labelledby="amounts">
        <h2 id="amounts">Resources</h2>
        <table class="small">
          <thead><tr>{["Resource", "Used", "Free", "Of"].map((text, at) => <th key={text} scope="col" class={at ? "number" : ""}>{text}</th>)}</tr></thead>
          <tbody>
            {resources.map((key) => (
              <tr key={key}>
                <th scope="row">{key}</th>
                <td class="number">{value.used[key] ?? "0"}</td>
                <td class="number">{value.free[key] ?? "0"}{WHOLE_GPUS.test(key) && broken > 0 && <strong class="bad"> {broken} broken</strong>}</td>
                <td class="number">{value.allocatable[key]}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <DeviceSection report={report} freeGpus={whole ? numberOf(value.free[whole]) : Infinity} />
      <section aria-labelledby="pods">
        <h2 id="pods"><Count of={value.pods.length} /> {value.pods.length === 1 ? "pod" : "pods"}</h2>
        {value.pods.length === 0 && <p class="empty">Nothing runs here.</p>}
        {value.pods.length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Pods">
            <table class="small">
              <thead><tr>{["Pod", "Gang", "Quota", "GPUs", "Requests", "Phase"].map((text) => <th key={text} scope="col" class={text === "GPUs" ? "number" : ""}>{text}</th>)}</tr></thead>
              <tbody>
                {value.pods.map((pod, at) => (
                  <tr key={pod.pod ?? at}>
                    <td>{pod.pod ? <Link href={toUnit("pod", pod.pod)}>{pod.pod}</Link> : <span class="none">a pod of others</span>}</td>
                    <td>{pod.podGroup ? <Link href={toUnit("podgroup", pod.podGroup)}>{pod.podGroup}</Link> : "–"}</td>
                    <td><QuotaName name={pod.quota} /></td>
                    <td class="number">{pod.gpus}</td>
                    <td>{tellAmounts(pod.requests)}</td>
                    <td>{pod.phase}{pod.isTerminating && ", terminating"}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      <Same command={`koord explain node/${name}`} url={`${BASE}/${path}`} />
    </>
  );
}

function useDevices(name: string) {
  const path = `nodes/${encodeURIComponent(name)}/devices`;
  return useFollowed({ topic: "devices", path, inPath: { name } }).value?.devices[0];
}

/** The devices of a node, if it reports which it has. A pod that asks a device plugin has some GPU, and nobody says which. */
function DeviceSection({ report, freeGpus }: { report: NodeDevices | undefined; freeGpus: number }) {
  if (!report) return null;
  const idle = report.devices.filter((device) => device.type === "gpu" && device.health && !device.pods.length).length;
  const isUnknown = idle > freeGpus;
  return (
    <section aria-labelledby="devices">
      <h2 id="devices">Devices</h2>
      {report.records.state !== "AllMatch" && <p class="missing">{report.records.message}</p>}
      {report.problems.map((problem) => <p key={problem.field} class="missing">{problem.field}: {problem.message}</p>)}
      {isUnknown && <p class="empty">Which GPU a pod has is not recorded here: of <Count of={idle} /> without a pod <Count of={freeGpus} /> {freeGpus === 1 ? "is" : "are"} free.</p>}
      <ul class="devices">
        {report.devices.map((device) => (
          <li key={`${device.type}${device.minor}`} class={device.health ? "" : "sick"}>
            <strong>{device.type} {device.minor}</strong>{" "}
            {!device.health && <span class="badge class-misconfigured">not healthy</span>}
            {device.pods.length === 0 && device.health && <span class="none">{isUnknown && device.type === "gpu" ? "not recorded" : "free"}</span>}
            <ul class="plain">
              {device.pods.map((pod) => <li key={pod}><Link href={toUnit("pod", pod)}>{pod}</Link></li>)}
            </ul>
            {device.pods.length > 0 && Object.values(device.free).some((amount) => numberOf(amount) > 0) && (
              <small>still free: {tellAmounts(device.free)}</small>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}
