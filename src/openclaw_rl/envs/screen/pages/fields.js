const build = (data) => {
  const inputs = data.fields.map((name) => [name, h("input", { autocomplete: "off" })]);
  const values = () => Object.fromEntries(inputs.map(([name, input]) => [name, input.value.trim()]));
  task.draft = values;
  let saved = values();
  draw(inputs.map(([name, input]) => field(name, input)),
    button("Save", () => { saved = values(); finish(); }));
  return () => saved;
};
