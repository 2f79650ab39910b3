// One unit: why it waits, what would help, and what happened to it.
import type { Explanation } from "../answers";
import { BASE, useFollowed } from "../live";
import { ClassBadge, Count, Gaps, Link, Missing, Same, Since } from "../parts";
import { to } from "../route";

export function JobView(props: { parts: string[] }) {
  const [namespace = "", kind = "", name = ""] = props.parts;
  const path = `namespaces/${encodeURIComponent(namespace)}/explanations/${kind}/${encodeURIComponent(name)}`;
  const { head, value, missing } = useFollowed<Explanation>({
    topic: "explanation", path, inPath: { namespace, kind, name },
  });
  if (!value) return <Missing message={missing} />;
  return (
    <>
      <Gaps gaps={head?.gaps} />
      <p class="lead">
        <span class="badge">{value.standing}</span>
        {value.dominant && <> <ClassBadge name={value.dominant.class} /></>}
        {value.since && <> since <Since at={value.since} /></>}
      </p>
      <Why value={value} />
      <Help value={value} />
      <Same command={`koord explain ${kind} ${name} -n ${namespace}`} url={`${BASE}/${path}`} />
    </>
  );
}

function Why({ value }: { value: Explanation }) {
  return (
    <section aria-labelledby="why">
      <h2 id="why" tabIndex={-1}>Why</h2>
      <p class="sentence">{value.dominant?.sentence ?? "There is nothing that it waits for."}</p>
      {value.reason && value.reason.message !== value.dominant?.sentence && <p>{value.reason.message}</p>}
      {value.nodes.length > 0 && (
        <table class="small">
          <caption>Nodes that cannot take it</caption>
          <thead><tr><th scope="col" class="number">Nodes</th><th scope="col">Cause</th><th scope="col">Such as</th></tr></thead>
          <tbody>
            {value.nodes.map((cause) => (
              <tr key={cause.cause}>
                <td class="number"><Count of={cause.nodes} /></td>
                <td>{cause.cause}</td>
                <td>{cause.examples.map((node) => node && <span key={node}><Link href={to("node", node)}>{node}</Link> </span>)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Help({ value }: { value: Explanation }) {
  const remedies = value.remedies?.items ?? [];
  if (!remedies.length && !value.advice.length) return null;
  return (
    <section aria-labelledby="help">
      <h2 id="help">What would help</h2>
      <ul class="plain">
        {remedies.map((remedy) => <li key={remedy.id}><span class="tried" title="Tried on a copy">✓</span> {remedy.then} <span class="badge">{remedy.by}</span></li>)}
        {value.advice.map((text) => <li key={text}>{text}</li>)}
      </ul>
    </section>
  );
}
