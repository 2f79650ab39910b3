// Why does it wait? Answers of koord within Headlamp, asked through the API server with the rights of
// whoever is logged in there. Reads only. Plain JavaScript: Headlamp hands over React and its parts as
// pluginLib, so nothing has to be built.
(() => {
  "use strict";
  const { React, ApiProxy, CommonComponents } = pluginLib;
  const { SectionBox, SimpleTable, NameValueTable } = CommonComponents;
  const make = React.createElement;

  const BASE = "/apis/answers.operators.koordinator.sh/v1alpha1";
  const SECONDS = 30;
  const MOST_ROWS = 100;
  const SCHEDULER = "koord-scheduler";
  const GATE = "operators.koordinator.sh/placement";
  const WAITING = new Set(["Waiting", "Placeable", "HeldUp", "Degraded", "BeingEvicted"]);
  const HIDDEN = "a gang in another namespace";

  // Tenants write names: characters that are not seen, or turn the direction, are shown by their codes.
  const plain = (text) =>
    String(text ?? "").replace(/[\p{Cc}\p{Cf}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

  const askServer = (path, cluster) => ApiProxy.request(path, cluster ? { cluster } : {}, false);

  // Asks again and again while it is shown; find returns a promise of what is asked for.
  function useAnswer(find, key) {
    const [state, setState] = React.useState({ value: null, error: "" });
    React.useEffect(() => {
      let isOver = false;
      const ask = () =>
        Promise.resolve()
          .then(find)
          .then(
            (value) => isOver || setState({ value, error: "" }),
            (error) => isOver || setState({ value: null, error: plain(error?.message || error) }),
          );
      ask();
      const timer = setInterval(ask, SECONDS * 1000);
      return () => {
        isOver = true;
        clearInterval(timer);
      };
    }, [key]);
    return state;
  }

  const pathOf = (kind, namespace, name) =>
    `${BASE}/namespaces/${encodeURIComponent(namespace)}/explanations/${kind}/${encodeURIComponent(name)}`;

  // Why a pod waits stands for its Job: what is said of a pod says what its gang lacks.
  async function findPodOf(job, cluster) {
    const query = new URLSearchParams({
      labelSelector: `batch.kubernetes.io/job-name=${job.name}`,
      fieldSelector: "status.phase=Pending",
      limit: "1",
    });
    const path = `/api/v1/namespaces/${encodeURIComponent(job.namespace)}/pods?${query}`;
    const pods = (await askServer(path, cluster)).items ?? [];
    return pods.length ? pods[0].metadata.name : null;
  }

  async function explain(target, cluster) {
    const { kind, namespace, name } = target;
    if (kind !== "job") return (await askServer(pathOf(kind, namespace, name), cluster)).value;
    const pod = await findPodOf(target, cluster);
    return pod === null ? null : (await askServer(pathOf("pod", namespace, pod), cluster)).value;
  }

  function rowsOf(answer) {
    const reason = answer.waits ?? answer.reason;
    const texts = [
      ["State", answer.standing],
      ["Since", answer.since],
      ["Why", reason?.message],
      ["Class", reason?.class],
      ...(answer.advice ?? []).map((text) => ["What would help", text]),
      ...(answer.warnings ?? []).map((text) => ["Not certain", text]),
    ];
    return texts.filter(([, text]) => text).map(([name, text]) => ({ name, value: plain(text) }));
  }

  function WaitSection({ target, cluster, isOurs }) {
    const key = [cluster, target.kind, target.namespace, target.name].join("/");
    const { value, error } = useAnswer(() => explain(target, cluster), key);
    if (error) {
      if (!isOurs) return null;
      return make(SectionBox, { title: "Why does it wait?" }, `koord cannot be asked: ${error}`);
    }
    if (value === null || !WAITING.has(value.standing)) return null;
    const rows = rowsOf(value);
    return make(SectionBox, { title: "Why does it wait?" }, make(NameValueTable, { rows }));
  }

  const KINDS = {
    "v1/Pod": "pod",
    "batch/v1/Job": "job",
    "scheduling.sigs.k8s.io/v1alpha1/PodGroup": "podgroup",
  };

  // Whether an object opts in; of others it is no problem if nobody can be asked.
  function optsIn(document) {
    if (document.kind === "PodGroup") return true;
    const spec = document.kind === "Job" ? document.spec?.template?.spec : document.spec;
    const gates = spec?.schedulingGates ?? [];
    return spec?.schedulerName === SCHEDULER || gates.some((gate) => gate.name === GATE);
  }

  pluginLib.registerDetailsViewSection(({ resource }) => {
    const document = resource?.jsonData;
    const kind = KINDS[`${document?.apiVersion}/${document?.kind}`];
    if (!kind) return null;
    const { namespace, name } = document.metadata;
    const target = { kind, namespace, name };
    return make(WaitSection, { target, cluster: resource.cluster, isOurs: optsIn(document) });
  });

  const COLUMNS = [
    { label: "#", getter: (row) => row.position ?? "–" },
    { label: "Job", getter: (row) => row.names.map((name) => plain(name ?? HIDDEN)).join(", ") },
    { label: "GPUs", getter: (row) => row.gpus },
    { label: "GPUs ahead", getter: (row) => row.gpusAhead },
    { label: "Class", getter: (row) => plain(row.class) },
    { label: "Why", getter: (row) => plain(row.message) },
    { label: "Since", getter: (row) => plain(row.since) },
  ];

  function QueuePage() {
    const { value, error } = useAnswer(() => askServer(`${BASE}/queue?limit=${MOST_ROWS}`), "queue");
    if (error) return make(SectionBox, { title: "What waits" }, `koord cannot be asked: ${error}`);
    const page = value?.value ?? { items: [], total: 0 };
    const gaps = (value?.gaps ?? []).map((gap) => `${gap.missing}: ${gap.then}`);
    const notes = page.total > page.items.length ? [`the first ${page.items.length} of ${page.total}`] : [];
    return make(
      SectionBox,
      { title: "What waits" },
      make(SimpleTable, { columns: COLUMNS, data: page.items }),
      make("p", null, plain([...notes, ...gaps].join("; "))),
    );
  }

  pluginLib.registerSidebarEntry({
    parent: null,
    name: "koord-queue",
    label: "What waits",
    url: "/koord-queue",
    icon: "mdi:timer-sand",
  });
  pluginLib.registerRoute({
    path: "/koord-queue",
    sidebar: "koord-queue",
    name: "koord-queue",
    exact: true,
    component: () => make(QueuePage),
  });
})();
