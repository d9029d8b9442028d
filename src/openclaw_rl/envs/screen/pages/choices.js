const build = (data) => {
  const picked = data.selects.map(({ name, options }) => [name, select(options)]);
  const values = () => Object.fromEntries(picked.map(([name, box]) => [name, box.value]));
  task.draft = values;
  let saved = values();
  draw(picked.map(([name, box]) => field(name, box)),
    button("Save", () => { saved = values(); finish(); }));
  return () => saved;
};
